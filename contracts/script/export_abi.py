"""Copies what the ledger client needs of forge's output into `ledger/abi/`, and nothing that differs between machines.

Usage: python contracts/script/export_abi.py [--check], after `forge build`. With --check it writes nothing, and exits
with 1 if a file is stale.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "contracts" / "out"
ABI = ROOT / "ledger" / "abi"
CONTRACTS = ("StakeToken", "Staking", "RunCoordinator")


def immutable_ranges(deployed: dict[str, Any]) -> list[list[int]]:
    """[start, length] of every place in the runtime code that the constructor fills in, ascending."""
    references = deployed.get("immutableReferences", {})
    return sorted([place["start"], place["length"]] for places in references.values() for place in places)


def runtime_sha256(deployed: dict[str, Any]) -> str:
    """SHA-256 of the runtime code with zeros in its immutable ranges, as the compiler leaves them."""
    return hashlib.sha256(bytes.fromhex(deployed["object"].removeprefix("0x"))).hexdigest()


def exported(artifact: dict[str, Any]) -> str:
    """The text of one contract's file: ABI, creation code, and how to recognise its deployed code."""
    entries = sorted(artifact["abi"], key=lambda entry: (entry["type"], entry.get("name", ""), json.dumps(entry)))
    content = {
        "abi": entries,
        "bytecode": artifact["bytecode"]["object"],
        "immutable_ranges": immutable_ranges(artifact["deployedBytecode"]),
        "runtime_sha256": runtime_sha256(artifact["deployedBytecode"]),
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def stale(out: Path, abi: Path) -> dict[Path, str]:
    """The files of `abi` that differ from what forge left in `out`, and what they should hold."""
    artifacts = {name: json.loads((out / f"{name}.sol" / f"{name}.json").read_text()) for name in CONTRACTS}
    wanted = {abi / f"{name}.json": exported(artifact) for name, artifact in artifacts.items()}
    return {path: text for path, text in wanted.items() if not path.is_file() or path.read_text() != text}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    check = parser.parse_args().check
    differing = stale(OUT, ABI)
    for path, text in differing.items():
        if check:
            print(f"{path.relative_to(ROOT)} is stale: run forge build, then contracts/script/export_abi.py")
        else:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
