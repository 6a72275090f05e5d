"""Roles whose RPC endpoint once left an event out, or made one up, and is honest before and afterwards."""

from collections.abc import Callable
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount

from ledger.base import Address, Block, Event, Ledger, RunEnded, RunId, Settled, State, Submitted
from tests.roles.network import Build, Network
from tests.roles.stage import Connect, until

Lie = Callable[[list[Event], int], list[Event]]


class Liar:
    """A ledger whose events go through `lie`; whatever that changes, it changes once. `settled` counts transactions."""

    def __init__(self, inner: Ledger, lie: Lie) -> None:
        self._inner = inner
        self.lie: Lie | None = lie
        self.settled = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def events(self, run: RunId, first: int, last: int) -> list[Event]:
        honest = await self._inner.events(run, first, last)
        told = honest if self.lie is None else self.lie(honest, last)
        if told != honest:
            self.lie = None
        return told

    async def settle(self, *what: Any) -> Any:
        self.settled += 1
        return await self._inner.settle(*what)


def lies_to(network: Network, who: LocalAccount, lie: Lie) -> list[Liar]:
    """Has `who` see the chain through a liar; the list fills when it connects."""
    honest: Connect = network.connect
    liars: list[Liar] = []

    def connect(account: LocalAccount) -> Any:
        if account.address != who.address:
            return honest(account)
        liars.append(Liar(honest(account), lie))
        return liars[-1]

    network.connect = connect
    return liars


def without(kind: type[Event]) -> Lie:
    return lambda events, _: [event for event in events if not isinstance(event, kind)]


@pytest.mark.parametrize("left_out", [Submitted, Settled], ids=["submitted", "settled"])
async def test_a_validator_finds_what_was_left_out_and_leaves_when_the_run_is_over(
    build: Build, left_out: type[Event]
) -> None:
    network = await build(validators=2, quorum=1)
    liars = lies_to(network, network.validators[0], without(left_out))
    blind, seeing = await network.all_validators()
    commitment = await network.commit_honestly(await network.worker())
    while blind.member.record.submissions.keys() != seeing.member.record.submissions.keys():
        await network.pass_time(1)
    assert await network.live(commitment) == State.SETTLED
    await network.end_run()
    await network.pass_time(100)

    await until(lambda: blind.finished and seeing.finished, "both leave")
    assert blind.task is not None and blind.task.exception() is None
    assert blind.member.record.submissions[commitment].state == State.SETTLED
    assert [liar.lie for liar in liars] == [None] and liars[0].settled <= 6  # in two minutes


async def test_nobody_leaves_at_a_made_up_end_of_the_run(build: Build) -> None:
    network = await build(validators=1)
    (honest,) = network.validators

    def ended(events: list[Event], last: int) -> list[Event]:
        return [*events, RunEnded(Block(last, 1), network.run)]

    lies_to(network, honest, ended)
    (validator,) = await network.all_validators()
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    assert await network.live(commitment) == State.SETTLED
    assert validator.member.record.ended is None and not validator.finished
    assert Address(validator.account.address) in validator.member.record.endpoints
