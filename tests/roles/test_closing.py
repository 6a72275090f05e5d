"""What a validator sends to bring submissions to their end, where the chain lies about the time, or refuses."""

from itertools import pairwise
from typing import Any

from eth_account.signers.local import LocalAccount

from ledger.base import Block, State
from ledger.errors import Unreachable, reverted
from ledger.memory import MemoryLedger
from tests.roles.network import Build
from tests.roles.stage import FastClock, Watched, until


async def test_a_submission_is_concluded_when_an_endpoint_has_told_a_time_to_come_for_a_while(build: Build) -> None:
    ahead = [0]

    class Lying(MemoryLedger):
        async def head(self) -> Block:
            head = await super().head()
            return Block(head.number, head.time + ahead[0])

    network = await build(validators=2)  # of which one runs: no quorum, so it can only expire

    def connect(account: LocalAccount) -> Lying:
        return Lying(network.chain, account)

    network.connect = connect
    validator = (await network.validator()).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)

    ahead[0] = 100_000
    await until(
        lambda: any(act.what == "conclude" for act in validator.role.closer.tried.resting), "a conclude too early"
    )
    assert not network.state(commitment).final
    ahead[0] = 0
    await until(lambda: validator.member.record.head.time <= network.chain.head.time, "the truth")

    await network.pass_time(network.spec.windows.settle_by + 20)
    assert await network.final(commitment) == State.EXPIRED


async def test_what_the_chain_refuses_again_and_again_is_sent_ever_less_often_and_keeps_nothing_from_its_end(
    build: Build,
) -> None:
    network = await build(validators=1)
    bad = await network.commit_honestly(await network.worker(200))
    plain, sent, clock = network.connect, list[float](), FastClock()

    def refuse(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "settle" and bad in arguments[1]:
            sent.append(clock.monotonic())
            raise Unreachable("the endpoint takes no such call") if len(sent) % 2 else reverted("UnknownRun")

    network.connect = lambda account: Watched(plain(account), before=refuse)  # type: ignore[arg-type,assignment]
    validator = (await network.validator()).go()
    await network.confirmed(bad)
    await network.audited(bad)
    await network.pass_time(12)
    await until(lambda: len(sent) >= 4)

    waits = [later - earlier for earlier, later in pairwise(sent[:4])]
    assert [wait >= 6 * 2**k for k, wait in enumerate(waits)] == [True] * 3  # seconds; a turn is 6
    await network.pass_time(network.spec.windows.settle_by)
    assert await network.final(bad) == State.EXPIRED
    assert not validator.finished
