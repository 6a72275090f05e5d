"""What a validator sends to bring submissions to their end, where the chain lies about the time, or refuses."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from eth_account.signers.local import LocalAccount

from ledger.base import Block, Digest, Receipt, RunId, State
from ledger.errors import Unreachable, reverted
from ledger.memory import MemoryLedger
from tests.roles.network import Build
from tests.roles.stage import FastClock, Killed, Watched, until


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


async def test_what_a_killed_validator_had_settled_is_read_before_anything_is_settled_by_who_came_back(
    build: Build,
) -> None:
    """The first process dies once it has sent; its transaction is mined a while after the second has begun, and events
    come from an endpoint that has not seen the block of it yet."""
    network = await build(validators=1)
    commitment = await network.commit_honestly(await network.worker())
    pool, settled, unseen = list[tuple[Any, ...]](), list[str](), [False]

    class Dying(MemoryLedger):
        async def settle(self, run: RunId, commitments: Sequence[Digest], signatures: Sequence[bytes]) -> Receipt:
            pool.append((run, commitments, signatures))
            raise Killed

    class Coming(MemoryLedger):
        async def finish_earlier(self) -> int:
            await asyncio.sleep(0.3)
            return (await MemoryLedger(network.chain, network.validators[0]).settle(*pool[0])).block.number

        async def head(self) -> Block:
            head = await super().head()
            return Block(head.number - 1, head.time - 1) if unseen[0] else head

        async def settle(self, run: RunId, commitments: Sequence[Digest], signatures: Sequence[bytes]) -> Receipt:
            settled.append("again")
            return await super().settle(run, commitments, signatures)

    network.connect = lambda account: Dying(network.chain, account)
    killed = (await network.validator()).go()
    await network.confirmed(commitment)
    await network.audited(commitment)
    await network.pass_time(12)
    await until(lambda: killed.finished, "the kill")
    network.parts.remove(killed)
    await killed.stop()

    unseen[0] = True
    network.connect = lambda account: Coming(network.chain, account)
    again = (await network.validator()).go()
    await until(lambda: network.state(commitment) == State.SETTLED, "the first process's transaction")
    await asyncio.sleep(0.5)  # twenty seconds of the roles' clock
    unseen[0] = False
    await until(lambda: again.member.record.is_final(commitment), "it is read")
    assert settled == []


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
