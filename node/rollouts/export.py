"""Rollouts as Parquet, for people and their tools. An export only: nothing ever reads it back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashing.encoding import PROOF_BYTES
from ledger.base import Address, Digest, Version
from node.errors import StoreError
from node.rollouts.rollout import Rollout


@dataclass(frozen=True, slots=True)
class SubmissionRows:
    """A decoded file and where it came from."""

    commitment: Digest
    node: Address
    version: Version
    slot: int
    rollouts: Sequence[Rollout]


def export_parquet(submissions: Iterable[SubmissionRows], path: Path) -> int:
    """Writes one row per rollout, one row group per submission, and returns the number of rows.

    `path` appears whole or not at all; one that exists is replaced. Digests are hexadecimal with 0x.

    Raises:
        StoreError: the file could not be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(pa)
    temporary = path.with_name(path.name + ".tmp")
    rows = 0
    try:
        with pq.ParquetWriter(temporary, schema) as writer:
            for submission in submissions:
                writer.write_table(pa.Table.from_pydict(_columns(submission), schema=schema))
                rows += len(submission.rollouts)
        temporary.replace(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def _schema(pa: Any) -> Any:
    return pa.schema(
        [
            ("commitment", pa.string()),
            ("node", pa.string()),
            ("version", pa.uint64()),
            ("slot", pa.uint64()),
            ("group", pa.uint16()),
            ("index", pa.uint16()),
            ("prompt_ids", pa.list_(pa.uint32())),
            ("output_ids", pa.list_(pa.uint32())),
            ("logprobs", pa.list_(pa.float32())),
            ("reward", pa.float32()),
            ("finish", pa.uint8()),
            ("proofs", pa.list_(pa.binary(PROOF_BYTES))),
        ]
    )


def _columns(submission: SubmissionRows) -> dict[str, list[Any]]:
    rollouts = submission.rollouts
    count = len(rollouts)
    return {
        "commitment": ["0x" + submission.commitment.hex()] * count,
        "node": [submission.node] * count,
        "version": [submission.version] * count,
        "slot": [submission.slot] * count,
        "group": [rollout.group for rollout in rollouts],
        "index": [rollout.index for rollout in rollouts],
        "prompt_ids": [rollout.prompt_ids for rollout in rollouts],
        "output_ids": [rollout.output_ids for rollout in rollouts],
        "logprobs": [rollout.logprobs for rollout in rollouts],
        "reward": [rollout.reward for rollout in rollouts],
        "finish": [rollout.finish for rollout in rollouts],
        "proofs": [rollout.proofs for rollout in rollouts],
    }
