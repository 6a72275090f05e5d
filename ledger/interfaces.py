"""The contracts' ABIs, from the generated files in `abi/`: calls encoded, results, events and errors decoded.

Leaves out what any of them means.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode
from eth_abi.exceptions import DecodingError, EncodingError
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from ledger.errors import reverted
from ledger.wire import BadAnswer

CONTRACTS: Final = ("StakeToken", "Staking", "RunCoordinator")


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str  # canonical: a struct is the tuple of its members' types
    indexed: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A function, event or error of a contract."""

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[str, ...]

    @property
    def signature(self) -> str:
        return f"{self.name}({','.join(parameter.type for parameter in self.inputs)})"

    @property
    def selector(self) -> bytes:
        return keccak(text=self.signature)[:4]

    @property
    def topic(self) -> bytes:
        return keccak(text=self.signature)


@dataclass(frozen=True, slots=True)
class Interface:
    """One contract. `runtime_sha256` is of its deployed code with zeros in `immutables`, [start, length] in bytes."""

    name: str
    functions: Mapping[str, Entry]
    events: Mapping[str, Entry]
    errors: Mapping[bytes, Entry]
    constructor: tuple[str, ...]
    bytecode: bytes
    immutables: tuple[tuple[int, int], ...]
    runtime_sha256: str

    def call(self, function: str, *arguments: object) -> bytes:
        """The call data of `function`. Raises: Reverted, as the contract would, where an argument is out of range."""
        entry = self.functions[function]
        try:
            return entry.selector + abi_encode([parameter.type for parameter in entry.inputs], arguments)
        except EncodingError as problem:
            raise reverted("OutOfRange", {"function": function, "why": str(problem)}) from problem

    def results(self, function: str, data: bytes) -> tuple[Any, ...]:
        """What `function` returned. Raises: BadAnswer."""
        return decode(self.functions[function].outputs, data)

    def creation(self, *arguments: object) -> bytes:
        """The data of the transaction that deploys the contract."""
        return self.bytecode + abi_encode(self.constructor, arguments)

    def is_runtime(self, code: bytes) -> bool:
        """Whether `code` is this contract's, whatever its constructor filled in."""
        blank = bytearray(code)
        for start, length in self.immutables:
            blank[start : start + length] = bytes(length)
        return len(blank) == len(code) and hashlib.sha256(blank).hexdigest() == self.runtime_sha256


def decode(types: Sequence[str], data: bytes) -> tuple[Any, ...]:
    """ABI values of `types`, addresses checksummed.

    A string is read as bytes and replaces what is not UTF-8: a contract takes any bytes for one, and one such
    event must not stop whoever reads the log.

    Raises:
        BadAnswer: `data` does not encode `types`.
    """
    readable = ["bytes" if kind == "string" else kind for kind in types]
    try:
        values = abi_decode(readable, data)
    except (DecodingError, ValueError, OverflowError) as problem:
        raise BadAnswer(f"not ABI-encoded {','.join(types)}") from problem
    return tuple(_native(kind, value) for kind, value in zip(types, values, strict=True))


def _native(kind: str, value: Any) -> Any:
    if kind == "string":
        return value.decode("utf-8", "replace")
    if isinstance(value, tuple):
        return tuple(_native("", part) for part in value)
    return to_checksum_address(value) if isinstance(value, str) else value  # the only strings left are addresses


@cache
def interface(name: str) -> Interface:
    """The contract `name`, one of `CONTRACTS`."""
    content = json.loads((files("ledger") / "abi" / f"{name}.json").read_text("utf-8"))
    entries: list[dict[str, Any]] = content["abi"]
    return Interface(
        name=name,
        functions={e["name"]: _entry(e) for e in entries if e["type"] == "function"},
        events={e["name"]: _entry(e) for e in entries if e["type"] == "event"},
        errors={_entry(e).selector: _entry(e) for e in entries if e["type"] == "error"},
        constructor=tuple(_type(i) for e in entries if e["type"] == "constructor" for i in e["inputs"]),
        bytecode=bytes.fromhex(content["bytecode"].removeprefix("0x")),
        immutables=tuple((start, length) for start, length in content["immutable_ranges"]),
        runtime_sha256=content["runtime_sha256"],
    )


@cache
def errors() -> dict[bytes, Entry]:
    """Every custom error of the contracts, by selector."""
    return {selector: entry for name in CONTRACTS for selector, entry in interface(name).errors.items()}


def _entry(entry: dict[str, Any]) -> Entry:
    inputs = tuple(Parameter(i["name"], _type(i), i.get("indexed", False)) for i in entry["inputs"])
    return Entry(entry["name"], inputs, tuple(_type(output) for output in entry.get("outputs", ())))


def _type(parameter: dict[str, Any]) -> str:
    kind: str = parameter["type"]
    if not kind.startswith("tuple"):
        return kind
    return f"({','.join(map(_type, parameter['components']))}){kind.removeprefix('tuple')}"
