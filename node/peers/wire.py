"""The JSON that nodes exchange about batches and verdicts, parsed with limits. Bytes are hex with 0x."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import from_json

from ledger.base import Digest, RunId
from ledger.errors import LedgerError
from ledger.messages import MAX_JSON_INTEGER, SignedMessage
from ledger.parsing import first_problem
from node.errors import Malformed

MAX_BATCH = 64  # entries of one `settle`; protocol, "Contract surface"
MAX_SIGNATURES = 32  # validators of one run
MAX_VERDICTS = 4 * MAX_SIGNATURES  # Have, NoFault and Faults of each
MAX_JSON_BYTES = 1 << 20
MAX_FIELDS = 16  # of one message

Body = TypeVar("Body", bound=BaseModel)

Hash = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{64}$")]
Signature = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{130}$")]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _BatchBody(_Wire):
    run: Annotated[int, Field(ge=0, le=MAX_JSON_INTEGER)]
    commitments: Annotated[list[Hash], Field(min_length=1, max_length=MAX_BATCH)]


class _BatchAnswer(_Wire):
    signature: Signature | None = None
    refused: Annotated[list[Hash], Field(max_length=MAX_BATCH)] = []


class _SignedBatchBody(_BatchBody):
    signatures: Annotated[list[Signature], Field(min_length=1, max_length=MAX_SIGNATURES)]


@dataclass(frozen=True, slots=True)
class SignedBatch:
    """A list that a quorum signed: `signatures` in ascending order of their signers."""

    run: RunId
    commitments: tuple[Digest, ...]
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """A validator's answer to a proposed list: its signature over the whole, or what it does not accept yet."""

    signature: bytes | None
    refused: tuple[Digest, ...]


def to_hex(data: bytes) -> str:
    return "0x" + data.hex()


def from_hex(text: str) -> bytes:
    """Lower-case digits only, so that one value has one spelling. Raises: Malformed."""
    digits = text.removeprefix("0x")
    if len(digits) % 2 or re.fullmatch("[0-9a-f]*", digits) is None:
        raise Malformed(f"not lower-case hex: {text[:80]!a}")
    return bytes.fromhex(digits)


def _digests(values: Sequence[str]) -> tuple[Digest, ...]:
    return tuple(Digest(from_hex(value)) for value in values)


def encode_proposal(run: RunId, commitments: Sequence[Digest]) -> bytes:
    return json.dumps({"run": run, "commitments": [to_hex(c) for c in commitments]}).encode()


def parse_proposal(data: bytes) -> tuple[RunId, tuple[Digest, ...]]:
    """Raises: Malformed."""
    body = _parse(_BatchBody, data)
    return RunId(body.run), _digests(body.commitments)


def encode_answer(answer: BatchAnswer) -> bytes:
    signature = None if answer.signature is None else to_hex(answer.signature)
    return json.dumps({"signature": signature, "refused": [to_hex(c) for c in answer.refused]}).encode()


def parse_answer(data: bytes) -> BatchAnswer:
    """Raises: Malformed."""
    body = _parse(_BatchAnswer, data)
    return BatchAnswer(None if body.signature is None else from_hex(body.signature), _digests(body.refused))


def encode_batch(batch: SignedBatch) -> bytes:
    return json.dumps(
        {
            "run": batch.run,
            "commitments": [to_hex(c) for c in batch.commitments],
            "signatures": [to_hex(s) for s in batch.signatures],
        }
    ).encode()


def parse_batch(data: bytes) -> SignedBatch:
    """Raises: Malformed. The signatures are parsed, not verified."""
    body = _parse(_SignedBatchBody, data)
    signatures = tuple(from_hex(value) for value in body.signatures)
    return SignedBatch(RunId(body.run), _digests(body.commitments), signatures)


def encode_verdicts(messages: Sequence[SignedMessage]) -> bytes:
    return json.dumps([message.encode() for message in messages]).encode()


def parse_verdicts(data: bytes) -> tuple[SignedMessage, ...]:
    """Raises: Malformed. The signatures are parsed, not verified."""
    _require_fields("verdicts", data, MAX_VERDICTS * MAX_FIELDS)
    try:
        rows = from_json(data)
        if not isinstance(rows, list) or len(rows) > MAX_VERDICTS:
            raise Malformed(f"verdicts: a list of at most {MAX_VERDICTS} is read")
        return tuple(SignedMessage.parse(row) for row in rows)
    except (ValueError, RecursionError, LedgerError) as error:
        raise Malformed(f"verdicts: {error}") from error


def _require_fields(what: str, data: bytes, most: int) -> None:
    """Before any JSON is read: pydantic names each field that it does not know, at a hundred times its bytes.

    Raises: Malformed.
    """
    if data.count(b":") > most:
        raise Malformed(f"{what}: has more than {most} fields")


def _parse(kind: type[Body], data: bytes) -> Body:
    _require_fields(kind.__name__.strip("_"), data, MAX_FIELDS)
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise Malformed(f"{kind.__name__.strip('_')}: {first_problem(error, 'body')}") from None
