"""Rollout files by chunks, through real sockets: several holders, liars, kills, and what is not sent twice."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from aiohttp import web
from blake3 import blake3

from ledger.base import Digest
from node.clock import SystemClock
from node.config import Home, Settings, Sharing
from node.errors import Malformed
from node.membership import member_of, served
from node.roles.handover import ASK_SECONDS, Handover
from node.roles.intake import Intake
from node.roles.mailbox import FileMailbox
from node.rollouts.file import size_limit
from node.rollouts.store import RolloutStore
from node.runspec import RunSpec, SlotSpec
from node.shards.manifest import CHUNK_BYTES, FileEntry, Manifest
from node.transport import make_app, serve
from tests.roles.network import Build, Network, Part
from tests.roles.stage import until

SIZE = 3 * CHUNK_BYTES + 5000


@pytest.fixture
def large(spec: RunSpec) -> RunSpec:
    """A run whose files may have sixteen chunks and more."""
    slot, units = SlotSpec(groups=32768, group_size=4), spec.units.model_copy(update={"max_units": 2**40 - 1})
    found = spec.model_copy(update={"slot": slot, "units": units})
    assert size_limit(found) > 16 * CHUNK_BYTES
    return found


def rollouts(seed: int, size: int = SIZE) -> bytes:
    """A file of `size` bytes whose root anybody can commit to: one leaf of noise after another."""
    noise, leaves = random.Random(seed), []
    while size:
        length = min(size - 4, 1 << 20)
        leaves.append(struct.pack("<I", length) + noise.randbytes(length))
        size -= 4 + length
    return b"".join(leaves)


async def committed(network: Network, data: bytes, bytes_per_second: float | None = None) -> tuple[Part, Digest]:
    """A worker that has committed to `data` and holds it, and uploads no faster than that."""
    with uploading(network, bytes_per_second):
        worker = await network.worker()
    return worker, await network.commit(worker, await network.assignment(worker), data, units=1)


@contextmanager
def uploading(network: Network, bytes_per_second: float | None) -> Iterator[None]:
    """Parts that are made meanwhile upload no faster than that."""
    before, network.settings = network.settings, {"sharing": Sharing(bytes_per_second)}
    try:
        yield
    finally:
        network.settings = before


async def asking(network: Network, place: int, bytes_per_second: float | None = None) -> Part:
    with uploading(network, bytes_per_second):
        validator = await network.validator(place, weights=False)
    await validator.member.sync()
    validator.role.intake.fetching.chunk_seconds = 400.0  # ten of the machine's
    return validator


def banned(part: Part) -> set[str]:
    return set(part.member.bans.reasons)


def name_of(commitment: Digest) -> str:
    return f"{commitment.hex()}.rollouts"


def manifest_of(data: bytes, name: str) -> Manifest:
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    return Manifest((FileEntry(name, len(data), tuple(blake3(chunk).digest() for chunk in chunks)),), ())


@asynccontextmanager
async def holder(
    manifest: Manifest, chunk: Callable[[bytes], bytes | None], pause_seconds: float = 0.0
) -> AsyncIterator[str]:
    """The URL of one that gives out `manifest`, and after a pause what `chunk` makes of the digest asked for."""

    async def answer(request: web.Request) -> web.StreamResponse:
        kind, *_, last = request.path.split("/")[2:]
        if last == "manifest":
            return web.Response(body=manifest.encode())
        if kind == "have":
            return web.Response(body=bytes([2 ** len(manifest.files[0].chunks) - 1]))
        await asyncio.sleep(pause_seconds if kind == "chunks" else 0)
        body = chunk(bytes.fromhex(last)) if kind == "chunks" else None
        return web.Response(status=404) if body is None else web.Response(body=body)

    app = make_app(1000)
    app.router.add_get("/{path:.*}", answer)
    runner, port = await serve(app, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def chunks_of(data: bytes) -> dict[bytes, bytes]:
    return {
        blake3(part).digest(): part for part in (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
    }


async def test_a_large_file_comes_from_all_who_hold_it(build: Build, large: RunSpec) -> None:
    network, data = await build(validators=2, spec=large), rollouts(1, 4 * CHUNK_BYTES)
    slow = 8e6  # no chunk comes before the second is asked for, 0.25 s after the first: from the other one
    worker, commitment = await committed(network, data, slow)
    other, validator = await asking(network, 0, slow), await asking(network, 1)
    await other.role.intake.take(commitment, data)

    assert await validator.role.intake.fetch(commitment)

    assert validator.role.intake.store.get(commitment) == data
    for each in (worker, other):
        assert 0 < each.member.uplink.sent_bytes < len(data)  # it alone would have sent all of it
    assert not list(validator.member.state.incoming.iterdir())


async def test_a_fetch_goes_on_where_the_process_was_killed(build: Build, large: RunSpec) -> None:
    network, data = await build(validators=1, spec=large), rollouts(2, 6 * CHUNK_BYTES)
    worker, commitment = await committed(network, data, 20e6)
    validator = await asking(network, 0)
    fetching = asyncio.create_task(validator.role.intake.fetch(commitment))
    await until(lambda: worker.member.uplink.sent_bytes > 3 * CHUNK_BYTES)
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)
    await validator.stop()
    network.parts.remove(validator)

    again = await asking(network, 0)
    assert not again.role.intake.holds(commitment)
    assert await again.role.intake.fetch(commitment)

    assert again.role.intake.store.get(commitment) == data
    assert worker.member.uplink.sent_bytes < len(data) + 2.5 * CHUNK_BYTES  # what was under way, and no more


async def test_who_sends_a_wrong_chunk_is_not_asked_again_and_the_others_are(build: Build, large: RunSpec) -> None:
    network, data = await build(validators=2, spec=large), rollouts(3)
    _, commitment = await committed(network, data, 8e6)
    pieces = chunks_of(data)
    async with holder(manifest_of(data, name_of(commitment)), lambda digest: bytes(len(pieces[digest]))) as liar:
        await network.connect(network.validators[0]).set_endpoint(liar)
        validator = await asking(network, 1)

        assert await validator.role.intake.fetch(commitment)

    assert validator.role.intake.store.get(commitment) == data
    assert banned(validator) == {liar, network.validators[0].address}
    assert liar not in validator.role.intake.fetching.holders(commitment)


async def test_who_lied_about_a_file_is_not_asked_at_another_url_either_nor_by_the_next_process(
    build: Build, large: RunSpec
) -> None:
    network, data = await build(validators=2, spec=large), rollouts(17)
    worker, commitment = await committed(network, data, 8e6)
    lying = network.connect(network.validators[0])
    pieces = chunks_of(data)
    wrong = manifest_of(data, name_of(commitment)), lambda digest: bytes(len(pieces[digest]))
    async with holder(*wrong) as first, holder(*wrong) as second:
        await lying.set_endpoint(first)
        validator = await asking(network, 1)
        assert await validator.role.intake.fetch(commitment)
        assert banned(validator) == {first, network.validators[0].address}

        await lying.set_endpoint(second)
        await validator.member.sync()
        url = validator.member.record.endpoints[worker.member.account]
        assert validator.role.intake.fetching.holders(commitment) == [url]

        await validator.stop()
        network.parts.remove(validator)
        again = await asking(network, 1)
        assert again.role.intake.fetching.holders(commitment) == [url]


async def test_who_gives_a_manifest_of_another_file_is_not_asked_again_and_the_file_is_had(
    build: Build, large: RunSpec
) -> None:
    network, data, false = await build(validators=2, spec=large), rollouts(4), rollouts(5)
    worker, commitment = await committed(network, data)
    other, validator = await asking(network, 0), await asking(network, 1)
    await other.role.intake.take(commitment, data)
    async with holder(manifest_of(false, name_of(commitment)), chunks_of(false).get) as liar:
        await network.connect(worker.account).set_endpoint(liar)  # who is asked first
        await validator.member.sync()

        assert await validator.role.intake.fetch(commitment)

    assert validator.role.intake.store.get(commitment) == data
    assert "do not hash to the committed root" in validator.member.bans.reasons[liar]
    assert banned(validator) == {liar, worker.account.address}


async def test_who_names_chunks_that_nobody_has_holds_up_nobody(build: Build, large: RunSpec) -> None:
    network, data = await build(validators=2, spec=large), rollouts(6)
    worker, commitment = await committed(network, data)
    other, validator = await asking(network, 0), await asking(network, 1)
    await other.role.intake.take(commitment, data)
    validator.role.intake.fetching.chunk_seconds = 40.0  # one of the machine's
    async with holder(manifest_of(rollouts(7), name_of(commitment)), lambda _: None) as silent:
        await network.connect(worker.account).set_endpoint(silent)
        await validator.member.sync()

        assert await validator.role.intake.fetch(commitment)
    assert validator.role.intake.store.get(commitment) == data


async def test_who_drips_chunks_of_another_file_holds_up_nobody(build: Build, large: RunSpec) -> None:
    network, data, false = await build(validators=2, spec=large), rollouts(15), rollouts(16, 16 * CHUNK_BYTES)
    worker, commitment = await committed(network, data)
    other, validator = await asking(network, 0), await asking(network, 1)
    await other.role.intake.take(commitment, data)
    fetching = validator.role.intake.fetching
    fetching.least_seconds = 1.5
    fetching.least_bytes_per_second = 1e9
    async with holder(manifest_of(false, name_of(commitment)), chunks_of(false).get, 1.0) as slow:
        await network.connect(worker.account).set_endpoint(slow)  # who is asked first
        await validator.member.sync()

        while not await validator.role.intake.fetch(commitment):  # on a busy machine 1.5 s may be too few
            pass

    assert validator.role.intake.store.get(commitment) == data
    assert banned(validator) == set()  # its file was left before it was whole, and so not known to be false


@pytest.mark.parametrize(
    "change",
    [
        lambda name: manifest_of(b"x" * 100, "other"),
        lambda name: Manifest((FileEntry(name, 10**10, (bytes(32),) * (-(-(10**10) // CHUNK_BYTES))),), ()),
        lambda name: Manifest(
            (FileEntry("0", 5, (bytes(32),)), FileEntry(name, 5, (bytes(32),))),
            (),
        ),
    ],
    ids=["name", "size", "files"],
)
async def test_who_gives_a_manifest_of_anything_else_is_not_asked_again(
    build: Build, large: RunSpec, change: Callable[[str], Manifest]
) -> None:
    network = await build(validators=1, spec=large)
    worker, commitment = await committed(network, rollouts(8, 5000))
    async with holder(change(name_of(commitment)), lambda _: None) as odd:
        await network.connect(worker.account).set_endpoint(odd)
        validator = await asking(network, 0)
        assert not await validator.role.intake.fetch(commitment)
    assert not validator.role.intake.fetching.begun()
    assert banned(validator) == {odd, worker.account.address}


@pytest.mark.slow
async def test_a_large_file_is_fetched_from_each_other_and_sent_whole_to_nobody_who_fetches_it(
    build: Build, large: RunSpec
) -> None:
    network, data = await build(validators=3, spec=large), rollouts(9, 8 * CHUNK_BYTES)
    worker, commitment = await committed(network, data, 12e6)
    worker.member.clock = SystemClock()
    validators = [await asking(network, place) for place in range(3)]
    for part in validators:
        part.member.clock = SystemClock()
        part.go()
    handover = Handover(worker.member, ask_seconds=0.1)
    await worker.member.sync()
    handover.start(commitment, data)

    await until(lambda: all(part.role.intake.holds(commitment) for part in validators))
    await until(lambda: len(handover.pushes) == 1, "only the trainer, who is not there, has not got it")
    await handover.close()

    assert worker.member.uplink.sent_bytes < 1.5 * len(data)


async def test_a_large_file_is_sent_whole_to_who_does_not_fetch_it(build: Build, large: RunSpec) -> None:
    network, data = await build(validators=1, spec=large), rollouts(10)
    worker, commitment = await committed(network, data)
    validator = await asking(network, 0)  # and does nothing by itself
    handover = Handover(worker.member)
    await worker.member.sync()
    handover.start(commitment, data)

    await until(lambda: bool(validator.role.intake.holds(commitment)))
    await handover.close()

    assert validator.role.intake.store.get(commitment) == data


class Slept(SystemClock):
    """Notes for how long it was asked to sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds)


async def test_a_large_file_is_sent_whole_at_once_by_who_announced_nothing(build: Build, large: RunSpec) -> None:
    network, data = await build(validators=1, spec=large), rollouts(14)
    worker, commitment = await committed(network, data)
    validator = await asking(network, 0)
    await network.connect(worker.account).set_endpoint("")
    worker.member.clock = clock = Slept()
    await worker.member.sync()
    handover = Handover(worker.member)
    handover.start(commitment, data)

    await until(lambda: bool(validator.role.intake.holds(commitment)))
    await handover.close()

    assert ASK_SECONDS not in clock.slept  # as it sleeps while a receiver could begin to fetch the file


async def test_what_came_of_a_file_is_deleted_when_nobody_needs_it(build: Build, large: RunSpec) -> None:
    network = await build(validators=1, spec=large)
    _, commitment = await committed(network, rollouts(11))
    validator = await asking(network, 0)
    begun = validator.member.state.incoming / commitment.hex()
    begun.mkdir(parents=True)
    (validator.member.state.incoming / "something").mkdir()

    await validator.role.intake.prune()
    assert begun.exists()  # its submission is open
    await validator.role.intake.take(commitment, rollouts(11))
    await validator.role.intake.prune()
    assert not begun.exists()


async def test_a_file_that_the_disk_changed_is_not_handed_out(build: Build, large: RunSpec) -> None:
    network, data = await build(validators=1, spec=large), rollouts(12)
    worker, commitment = await committed(network, data)
    path = RolloutStore(worker.member.state.rollouts).path(commitment)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    await worker.member.sync()
    validator = await asking(network, 0)

    assert not await validator.role.intake.fetch(commitment)

    assert banned(validator) == set()  # it was the disk, and its holder noticed
    assert not path.exists()


async def test_a_worker_that_serves_no_weights_hands_out_its_files(build: Build, large: RunSpec) -> None:
    network, data = await build(validators=1, spec=large), rollouts(13)
    worker, commitment = await committed(network, data)
    home = Home(network.folder / "silent")
    settings = Settings(home, network.run, host="127.0.0.1", allow_private=True, sharing=Sharing(weights=False))
    async with member_of(network.connect(worker.account), settings) as member:
        intake = Intake(member, RolloutStore(member.state.rollouts))
        async with served(member, FileMailbox(intake, takes=False)):  # in the place of the other one from now on
            root = await asyncio.to_thread(member.checkpoints.add, network.base)
            await intake.take(commitment, data)
            validator = await asking(network, 0)
            url = validator.member.record.endpoints[member.account]

            with pytest.raises(Malformed, match="serves no weights"):
                await validator.member.peers.have(url, root)
            assert await validator.role.intake.fetch(commitment)
    assert validator.role.intake.store.get(commitment) == data
