#!/usr/bin/env node
// Runs the pinned forge of node_modules and exits as it does: npm's own wrapper (1.7.1) exits with 0 even when a test
// fails. Usage: contracts/script/forge.js test
"use strict";

const { spawnSync } = require("node:child_process");
const path = require("node:path");

const ROOT = path.resolve(__dirname, "..", "..");
const ARCHITECTURE = { x64: "amd64", arm64: "arm64" }[process.arch];
const SUFFIX = process.platform === "win32" ? ".exe" : "";
const PACKAGE = `@foundry-rs/forge-${process.platform}-${ARCHITECTURE}`;

const binary = path.join(ROOT, "node_modules", PACKAGE, "bin", `forge${SUFFIX}`);
const { status, error } = spawnSync(binary, process.argv.slice(2), { cwd: ROOT, stdio: "inherit" });
if (error) process.stderr.write(`${binary}: ${error.message}; run npm ci first\n`);
process.exitCode = status ?? 1;
