"""Taking in files, and what a node without a part in validating answers."""

import struct
import time

import pytest

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.peers.server import NotYet
from node.roles.mailbox import FileMailbox
from tests.roles.network import Build
from tests.roles.stage import Watched, tar_pit


async def test_a_file_is_taken_only_when_it_is_what_was_committed_to(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    data = worker.role.maker.intake.store.get(commitment)
    assert data is not None
    intake = (await network.validator()).role.intake

    with pytest.raises(NotYet, match="send it again"):
        await intake.wants(Digest(b"\x09" * 32))
    assert await intake.wants(commitment)
    for wrong in (b"", data[:-1], data + b"\0", data[4:], struct.pack("<I", 2**31) + data, b"\0" * (1 << 20)):
        with pytest.raises(Malformed):
            await intake.take(commitment, wrong)
    assert not intake.holds(commitment)

    await intake.take(commitment, data)
    made = intake.member.record.submissions[commitment].made
    assert (intake.get(made), await intake.wants(commitment)) == (data, False)


async def test_a_file_is_had_from_another_when_the_first_ones_asked_stall(build: Build) -> None:
    network = await build(validators=3)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    holding = await network.validator(1)
    holding.role.intake.store.put(commitment, worker.role.maker.intake.store.get(commitment))

    async with tar_pit() as url:
        for account in (worker.account, network.validators[0]):  # the worker is asked first
            await network.connect(account).set_endpoint(url)
        asking = await network.validator(2)
        await asking.member.sync()
        asking.role.intake.fetching.patience_seconds = 0.05
        started = time.monotonic()

        assert await asking.role.intake.fetch(commitment)
        assert time.monotonic() - started < 5  # a question of its kind is given up after 20


async def test_a_holder_that_never_comes_to_an_end_is_left_after_its_share(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    async with tar_pit() as url:
        await network.connect(worker.account).set_endpoint(url)
        asking = await network.validator()
        await asking.member.sync()
        asking.role.intake.fetching.share_seconds = 0.1
        started = time.monotonic()

        assert not await asking.role.intake.fetch(commitment)
        assert time.monotonic() - started < 5


async def test_requests_of_strangers_do_not_make_a_node_read_the_chain_more_often_than_it_does_anyway(
    build: Build,
) -> None:
    network = await build(validators=1)
    plain, looks = network.connect, list[str]()

    def note(name: str, _: object) -> None:
        looks.extend([name] if name == "events" else [])

    network.connect = lambda account: Watched(plain(account), before=note)  # type: ignore[arg-type,assignment]
    validator = await network.validator()
    looks.clear()
    validator.member.settings = type(validator.member.settings)(
        validator.member.settings.home, network.run, host="127.0.0.1", poll_seconds=1e9
    )
    for number in range(50):
        with pytest.raises(NotYet):
            await validator.mailbox.verdicts(Digest(number.to_bytes(32)))

    assert looks == []


async def test_a_node_that_does_not_validate_says_so(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    hands_out, takes_in = worker.mailbox, FileMailbox(worker.role.maker.intake, takes=True)

    assert (await hands_out.submission(commitment)).stat().st_size > 0
    assert (hands_out.max_file_bytes, takes_in.max_file_bytes > 0) == (0, True)
    with pytest.raises(NotFound, match="takes no files"):
        await hands_out.wants_submission(commitment)
    assert await takes_in.wants_submission(commitment) is False
    with pytest.raises(NotFound, match="does not hold that file"):
        await hands_out.submission(Digest(bytes(32)))
    for asked in (
        hands_out.verdicts(commitment), hands_out.take_verdicts(commitment, []), hands_out.batch(commitment),
        hands_out.sign_batch(network.run, [commitment]), hands_out.evidence(commitment),
    ):  # fmt: skip
        with pytest.raises(NotFound, match="no validator"):
            await asked
