"""Fetching the newest weights in the background: no peer stops it, and nothing stops it unnoticed."""

import asyncio
import logging
import os
import shutil
from pathlib import Path

import pytest

from ledger.base import Digest, Version
from node.config import Sharing
from node.shards.room import taken_bytes
from tests.roles.network import TRAINER, Build
from tests.roles.stage import FastClock, until


@pytest.mark.parametrize("url", ["http://a..b", "http://" + "a" * 64 + ".com", "http://[::1", "gopher://x", "\x00"])
async def test_a_node_gets_the_weights_when_others_announce_what_is_no_address(build: Build, url: str) -> None:
    network = await build(validators=2)
    node = await network.validator(0, weights=False)
    await (await network.validator(1)).member.ledger.set_endpoint(url)
    await (await network.worker()).member.ledger.set_endpoint(url)
    await node.member.sync()

    async with node.member.weights.following():
        selection = node.member.downloader.selection
        await until(lambda: "not asked" not in selection.account([url]), "that was asked")
        await network.trainer()  # has the weights, and announces where
        await node.member.sync()
        await until(lambda: node.member.versions.held(Version(0)) is not None, "the weights")


async def test_the_block_ends_with_the_error_when_following_fails(build: Build) -> None:
    class Broken(FastClock):
        async def sleep(self, seconds: float) -> None:
            raise RuntimeError("a bug")

    member = (await (await build(validators=1)).validator()).member
    member.clock = Broken()

    with pytest.raises(RuntimeError, match="a bug"):
        async with member.weights.following():
            await asyncio.Event().wait()


async def test_an_error_of_the_block_is_that_error(build: Build) -> None:
    member = (await (await build(validators=1)).validator()).member

    with pytest.raises(LookupError, match="of the block"):
        async with member.weights.following():
            raise LookupError("of the block")


async def test_a_quota_that_holds_one_version_alone_is_warned_about_once(
    build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=2)
    origin, owner = await network.validator(1), network.connect(TRAINER)
    for version in (1, 2):
        folder = tmp_path / str(version)
        shutil.copytree(network.base, folder)
        with (folder / "model.safetensors").open("r+b") as weights:
            weights.seek(-1, os.SEEK_END)
            weights.write(bytes([version]))
        await owner.publish_checkpoint(network.run, Version(version), origin.member.checkpoints.add(folder))
    one = taken_bytes(origin.member.state.checkpoints) // 3
    network.settings = {"sharing": Sharing(quota_bytes=one + one // 2)}
    node = await network.validator(0)

    async with node.member.weights.following():
        await until(lambda: any("the quota" in said for said in unheard(caplog)), "it is said")
        since = node.member.clock.monotonic()
        await until(lambda: node.member.clock.monotonic() - since > 30, "some tries more")

    assert len(unheard(caplog)) == 1


def unheard(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The reasons for which weights are said not to be had."""
    return [str(each.fields["reason"]) for each in caplog.records if "weights not had yet" in each.getMessage()]  # type: ignore[attr-defined]


async def test_a_download_is_dropped_when_the_run_has_gone_past_its_version(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "intellect-node")
    network = await build(validators=1)
    member = (await network.validator()).member
    past = Version(1 + network.spec.async_level + 1)

    async def publish(versions: range) -> None:
        for version in versions:
            await network.connect(TRAINER).publish_checkpoint(
                network.run, Version(version), Digest(bytes([version]) * 32)
            )
        await member.sync()

    def dropped() -> list[int]:
        return [each.fields["version"] for each in caplog.records if "dropped" in each.getMessage()]  # type: ignore[attr-defined]

    await publish(range(1, 2))  # which nobody has
    async with member.weights.following():
        await until(lambda: any("Weights.folder" in repr(task) for task in asyncio.all_tasks()), "it is asked for")
        await publish(range(2, past + 1))
        assert dropped() == []  # work could still go on with it
        await network.pass_time(network.spec.windows.grace + 1)
        await member.sync()

        await until(lambda: dropped() == [1], "it is dropped")
