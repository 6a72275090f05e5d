#!/usr/bin/env node
// The command-line compiler that forge expects, over the pinned solc-js of node_modules: forge downloads nothing.
// Answers --version and --standard-json, whatever the working directory; imports are read from the project root.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const ROOT = path.resolve(__dirname, "..", "..");
const solc = require(path.join(ROOT, "node_modules", "solc"));

function version() {
  const release = solc.version().replace(/\.Emscripten\.clang$/, ""); // forge parses the native compiler's suffix only
  return `solc, the solidity compiler commandline interface\nVersion: ${release}.Linux.g++\n`;
}

function readImport(name) {
  try {
    return { contents: fs.readFileSync(path.resolve(ROOT, name), "utf8") };
  } catch (error) {
    return { error: error.message };
  }
}

function writeWhole(text) {
  const bytes = Buffer.from(text, "utf8");
  let written = 0;
  while (written < bytes.length) {
    try {
      written += fs.writeSync(1, bytes, written);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error; // a full pipe: forge reads on
    }
  }
}

const flags = process.argv.slice(2);
if (flags.includes("--version")) {
  writeWhole(version());
} else if (flags.includes("--standard-json")) {
  writeWhole(solc.compile(fs.readFileSync(0, "utf8"), { import: readImport }));
} else {
  process.stderr.write("usage: solc.js --version | --standard-json < input.json\n");
  process.exitCode = 2;
}
