"""Evidence of a rejection: canonical JSON with everything that anybody needs to look at it again.

Its BLAKE3 is what a `Fault` signs. Looking at it again is `node.checks.reopening`. Source: protocol, "Evidence".
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

import rfc8785
from blake3 import blake3
from pydantic import BaseModel, ConfigDict, FailFast, Field, StringConstraints, ValidationError

from hashing import merkle
from ledger.base import WHOLE_FILE, Address, Digest, RunId, Version
from ledger.parsing import first_problem
from node.checks.subject import Claim
from node.errors import Malformed
from node.runspec import MAX_UNITS, Hex32
from node.verdicts import Check, Rejected

MAX_EVIDENCE_BYTES = 64 * 1024 * 1024  # a whole file of a large run, in base64
MAX_LEAVES = 2**16
MAX_PATH = 32  # a tree over at most 2^32 leaves
MAX_TEXT = 1000  # characters of a figure, a reason, a version
MAX_INTEGER = 2**53 - 1  # what canonical JSON can hold exactly

AddressText = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{40}$")]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Integer = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Row = Annotated[int, Field(ge=0, le=WHOLE_FILE)]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One leaf: its exact bytes, and the siblings that lead from their hash to the committed root."""

    leaf: int
    preimage: bytes
    path: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Versions:
    """What found the fault: the model's name, the engine's (library, version, device), this program's version."""

    model: str
    engine: str
    code: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """`rows` is the number of leaves of the committed tree; `exhibits` ascend by leaf.

    One exhibit where a leaf is at fault; where the whole file is, those that were judged together.
    """

    claim: Claim
    beacon_block: int
    rows: int
    exhibits: tuple[Exhibit, ...]
    rejected: Rejected
    versions: Versions

    def encode(self) -> bytes:
        """Canonical JSON (RFC 8785)."""
        return rfc8785.dumps(_Wire.of(self).model_dump(mode="json"))

    @property
    def digest(self) -> Digest:
        """BLAKE3 of the encoding: what a `Fault` signs."""
        return Digest(blake3(self.encode()).digest())

    @classmethod
    def parse(cls, data: bytes) -> Evidence:
        """The evidence in `data`. Nothing is believed of it yet: see `node.checks.reopening`.

        Raises:
            Malformed: over `MAX_EVIDENCE_BYTES`, an unknown or missing field, a value out of range, leaves that do not
                ascend, or an encoding that is not the canonical one.
        """
        if len(data) > MAX_EVIDENCE_BYTES:
            raise Malformed(f"evidence of {len(data)} bytes: at most {MAX_EVIDENCE_BYTES} are read")
        try:
            evidence = _Wire.model_validate_json(data).value()
        except ValidationError as error:
            raise Malformed(f"evidence: {first_problem(error, 'the whole')}") from error
        except ValueError as error:  # of base64
            raise Malformed(f"evidence: {str(error)[:MAX_TEXT]}") from error
        leaves = [exhibit.leaf for exhibit in evidence.exhibits]
        if any(low >= high for low, high in pairwise(leaves)):
            raise Malformed("evidence: leaves do not ascend")
        if evidence.encode() != data:
            raise Malformed("evidence is not canonical JSON (RFC 8785): its digest would not be unique")
        return evidence


def gather(
    claim: Claim,
    rejected: Rejected,
    preimages: Sequence[bytes],
    judged: Sequence[int],
    beacon_block: int,
    versions: Versions,
) -> Evidence:
    """The evidence of `rejected`, out of the file's leaves.

    Args:
        preimages: of all leaves of the file, in order.
        judged: the leaves that were judged together, ascending; counts only where the whole file is at fault.
        beacon_block: the block whose beacon is the slot's.
    """
    hashes = [merkle.leaf_hash(preimage) for preimage in preimages]
    leaves = judged if rejected.leaf == WHOLE_FILE else (rejected.leaf,)
    exhibits = tuple(Exhibit(leaf, preimages[leaf], merkle.path(hashes, leaf)) for leaf in leaves)
    return Evidence(claim, beacon_block, len(preimages), exhibits, rejected, versions)


class _Strict(BaseModel):
    """What is no field is found when the bytes are compared with the canonical ones: to name each takes memory."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Exhibit(_Strict):
    leaf: Row
    preimage: str  # base64, with padding
    path: Annotated[list[Hex32], Field(max_length=MAX_PATH)]


class _Claim(_Strict):
    chain_id: Integer
    contract: AddressText
    run: Integer
    spec_digest: Hex32
    manifest_root: Hex32
    node: AddressText
    version: Integer
    slot: Integer
    root: Hex32
    units: Annotated[int, Field(ge=0, lt=MAX_UNITS)]
    beacon: Hex32

    @classmethod
    def of(cls, claim: Claim) -> _Claim:
        return cls(
            chain_id=claim.chain_id, contract=claim.contract, run=claim.run, spec_digest=claim.spec_digest.hex(),
            manifest_root=claim.manifest_root.hex(), node=claim.node, version=claim.version, slot=claim.slot,
            root=claim.root.hex(), units=claim.units, beacon=claim.beacon.hex(),
        )  # fmt: skip

    def value(self) -> Claim:
        return Claim(
            self.chain_id, Address(self.contract), RunId(self.run), _digest(self.spec_digest),
            _digest(self.manifest_root), Address(self.node), Version(self.version), self.slot, _digest(self.root),
            self.units, _digest(self.beacon),
        )  # fmt: skip


class _Versions(_Strict):
    model: Text
    engine: Text
    code: Text


class _Wire(_Strict):
    """Evidence as JSON: digests in hexadecimal, bytes in base64."""

    protocol: Literal[1]
    claim: _Claim
    beacon_block: Integer
    rows: Annotated[int, Field(ge=1, le=2**32 - 1)]
    exhibits: Annotated[list[_Exhibit], Field(max_length=MAX_LEAVES), FailFast()]
    check: Annotated[int, Field(ge=min(Check), le=max(Check))]
    leaf: Row
    measured: Text
    threshold: Text
    detail: Text
    versions: _Versions

    @classmethod
    def of(cls, evidence: Evidence) -> _Wire:
        rejected, versions = evidence.rejected, evidence.versions
        return cls(
            protocol=1, claim=_Claim.of(evidence.claim), beacon_block=evidence.beacon_block, rows=evidence.rows,
            exhibits=[_exhibit(exhibit) for exhibit in evidence.exhibits], check=int(rejected.check),
            leaf=rejected.leaf, measured=rejected.measured, threshold=rejected.threshold, detail=rejected.detail,
            versions=_Versions(model=versions.model, engine=versions.engine, code=versions.code),
        )  # fmt: skip

    def value(self) -> Evidence:
        exhibits = tuple(
            Exhibit(
                exhibit.leaf,
                base64.b64decode(exhibit.preimage, validate=True),
                tuple(bytes.fromhex(sibling) for sibling in exhibit.path),
            )
            for exhibit in self.exhibits
        )
        rejected = Rejected(Check(self.check), self.leaf, self.measured, self.threshold, self.detail)
        versions = Versions(self.versions.model, self.versions.engine, self.versions.code)
        return Evidence(self.claim.value(), self.beacon_block, self.rows, exhibits, rejected, versions)


def _exhibit(exhibit: Exhibit) -> _Exhibit:
    return _Exhibit(
        leaf=exhibit.leaf,
        preimage=base64.b64encode(exhibit.preimage).decode(),
        path=[sibling.hex() for sibling in exhibit.path],
    )


def _digest(text: str) -> Digest:
    return Digest(bytes.fromhex(text))
