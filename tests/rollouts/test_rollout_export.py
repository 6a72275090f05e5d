"""The Parquet export, read back by pyarrow."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ledger.base import Address, Digest, Version
from node.errors import StoreError
from node.rollouts.export import SubmissionRows, export_parquet
from node.rollouts.rollout import Rollout

NODE = Address("0x" + "44" * 20)


def submitted(rollouts: tuple[Rollout, ...], slot: int) -> SubmissionRows:
    return SubmissionRows(Digest(bytes([slot]) * 32), NODE, Version(3), slot, rollouts)


def test_one_row_per_rollout_with_the_fields_names(tmp_path: Path, rollouts: tuple[Rollout, ...]) -> None:
    path = tmp_path / "rollouts.parquet"

    rows = export_parquet([submitted(rollouts, 2), submitted(rollouts[:1], 3)], path)
    table = pq.read_table(path).to_pylist()

    assert (rows, len(table)) == (7, 7)
    assert list(table[1]) == [
        *("commitment", "node", "version", "slot", "group", "index"),
        *("prompt_ids", "output_ids", "logprobs", "reward", "finish", "proofs"),
    ]
    assert table[1] == {
        "commitment": "0x" + "02" * 32,
        "node": NODE,
        "version": 3,
        "slot": 2,
        "group": 0,
        "index": 1,
        "prompt_ids": [1, 2, 3],
        "output_ids": [2],
        "logprobs": [-2.0],
        "reward": 0.0,
        "finish": 0,
        "proofs": [b"\xcd" * 258],
    }
    assert (table[2]["reward"], len(table[2]["proofs"]), table[6]["slot"]) == (0.3333333432674408, 2, 3)


def test_an_export_of_nothing_is_an_empty_table(tmp_path: Path) -> None:
    assert export_parquet([], tmp_path / "none.parquet") == 0
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


def test_a_failed_export_leaves_the_old_file_and_nothing_else(tmp_path: Path, rollouts: tuple[Rollout, ...]) -> None:
    path = tmp_path / "rollouts.parquet"
    export_parquet([submitted(rollouts, 2)], path)
    before = path.read_bytes()

    def interrupted() -> Iterator[SubmissionRows]:
        yield submitted(rollouts, 3)
        raise StoreError("the next file cannot be read")

    with pytest.raises(StoreError, match="cannot be read"):
        export_parquet(interrupted(), path)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="absent"):
        export_parquet([], tmp_path / "absent" / "rollouts.parquet")
