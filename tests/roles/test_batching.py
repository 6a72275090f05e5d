"""What is asked for a second time after refusals, and whose turn it is."""

import time

import pytest

from ledger.base import Block, Digest
from node.peers.wire import BatchAnswer
from node.roles.batching import undisputed
from node.roles.turns import TURN_SECONDS, is_turn
from tests.roles.network import Build
from tests.roles.stage import tar_pit

A, B, C = (Digest(bytes([n]) * 32) for n in (1, 2, 3))


def test_entries_remain_when_enough_others_did_not_refuse_them() -> None:
    liar = BatchAnswer(None, (A, B, C))
    honest = [BatchAnswer(None, (B,)), BatchAnswer(None, (B, C))]

    # N = 4, M = 3: two of the three others are needed beside the one that asks.
    assert undisputed([A, B, C], [liar, *honest], least=2) == [A]
    assert undisputed([A, B, C], honest, least=2) == [A]
    assert undisputed([A, B, C], [liar, honest[0]], least=2) == []
    assert undisputed([A, B], [BatchAnswer(b"signed", ()), honest[0]], least=2) == [A]


def test_an_answer_that_neither_signs_nor_refuses_what_is_listed_refuses_everything() -> None:
    honest = BatchAnswer(None, (B,))

    for empty in (BatchAnswer(None, ()), BatchAnswer(None, (C,))):  # C is not on the list
        assert undisputed([A, B], [empty, honest], least=2) == []
        assert undisputed([A, B], [empty, honest], least=1) == [A]


async def yes(_: object) -> bool:
    return True


async def test_a_validator_that_stalls_is_not_waited_for_when_a_quorum_signs_without_it(build: Build) -> None:
    network = await build(validators=3, quorum=2)
    asking, signing = await network.validator(0), await network.validator(1)
    commitment = await network.commit_honestly(await network.worker())
    object.__setattr__(signing.mailbox, "acceptable", yes)
    batcher = asking.role.closer.batcher
    await network.pass_time(network.spec.windows.available + 3 * TURN_SECONDS)

    async with tar_pit() as url:
        await network.connect(network.validators[2]).set_endpoint(url)
        await asking.member.sync()
        await signing.member.sync()
        batcher.share_seconds = 60.0
        started = time.monotonic()
        await batcher.propose(yes)
        assert time.monotonic() - started < 10  # any question is given up after 20
        assert len(batcher.batches[commitment].signatures) == 2

        batcher.batches.clear()
        batcher.share_seconds = 0.5
        for account in network.validators[1:]:
            await network.connect(account).set_endpoint(url)
        await asking.member.sync()
        started = time.monotonic()
        await batcher.propose(yes)
        assert time.monotonic() - started < 10
        assert batcher.batches == {}


@pytest.mark.parametrize(
    ("place", "since_seconds"),
    [(1, 0), (2, 6), (3, 12), (0, 18)],  # commitment 0x00000005...: 5 mod 4 = 1 comes first, then in order
)
async def test_validators_take_turns_of_six_seconds_from_the_one_that_the_commitment_names(
    build: Build, place: int, since_seconds: int
) -> None:
    network = await build(validators=4)
    member = (await network.validator(place)).member
    commitment = Digest(bytes([0, 0, 0, 5]) + bytes(28))

    member.record.head = Block(1, 1000 + since_seconds - 1)
    assert not is_turn(member, commitment, since=1000)
    member.record.head = Block(1, 1000 + since_seconds)
    assert is_turn(member, commitment, since=1000)
