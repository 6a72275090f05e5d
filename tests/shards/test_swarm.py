"""Nodes that are killed while they receive, among liars."""

import random
from pathlib import Path

import pytest

from tests.shards.swarm import churn


def chunks(folder: Path, count: int, size: int) -> Path:
    """A checkpoint of so many files, each one chunk."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:03}").write_bytes(random.Random(number).randbytes(size))
    return folder


async def test_every_node_ends_with_the_right_bytes_when_some_are_killed_and_one_lies(tmp_path: Path) -> None:
    source = chunks(tmp_path / "source", 24, 100_000)

    swarm = await churn(
        tmp_path, source, honest=2, liars=1, kills=2, pause_seconds=0.3, megabytes_s=1.5, seed=1, lies=1.0
    )

    assert all(node.has(source, swarm.root) for node in swarm.honest)
    assert any(node.lied_to() for node in swarm.honest)
    liars = {liar.url for liar in swarm.liars}
    assert all(node.banned() == (liars if node.lied_to() else set()) for node in swarm.honest)
    assert swarm.fetched_twice() <= 0.1  # two or three of 48


@pytest.mark.slow
async def test_a_swarm_of_eight_ends_with_the_right_bytes_after_a_hundred_kills_when_two_lie(tmp_path: Path) -> None:
    source = chunks(tmp_path / "source", 256, 1_000_000)

    swarm = await churn(tmp_path, source, honest=6, liars=2, kills=100, pause_seconds=0.7, megabytes_s=3.5, seed=1)

    banned = [node.banned() for node in swarm.honest]
    print(f"fetched twice: {swarm.fetched_twice():.2%}; banned: {[len(each) for each in banned]}")
    assert all(node.has(source, swarm.root) for node in swarm.honest)
    assert set().union(*banned) == {liar.url for liar in swarm.liars}
    assert swarm.fetched_twice() <= 0.05
