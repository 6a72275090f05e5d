"""A funded run on any ledger, and what its people do on chain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount

from ledger.base import Address, Digest, Event, Fault, Ledger, RunId, RunParams, State, Submitted, Version, Windows
from ledger.errors import Reverted
from ledger.messages import Batch, Domain, NodeAuthorization, sign

SPEC = b'{"name":"contract"}'
ROOT, BEACON, EVIDENCE = (Digest(bytes([value]) * 32) for value in (0x11, 0x22, 0x33))
ZERO = Address("0x" + "00" * 20)
WINDOWS = Windows(available=100, audit=100, settle_by=500, confirm=100, contest=200, panel=50, grace=60)
DUE = 200  # available + audit
UNITS, PRICE, POT = 10, 3, 90  # the pot pays three submissions of 10 units
PENALTY, BOND, STAKE = 1000, 100, 4000  # the stake backs three open submissions, of which two are permitted


class World(Protocol):
    async def ledger_for(self, account: LocalAccount) -> Ledger:
        """The chain as `account` sees it, with coins for gas."""

    async def advance(self, seconds: int) -> None:
        """Ends a block at least `seconds` after the latest one."""


@dataclass(frozen=True)
class Scene:
    """A funded run at version 0 with three validators, two of which are a quorum, and a backed node."""

    world: World
    owner: Ledger  # also the trainer
    provider: Ledger
    node: Ledger
    node_elsewhere: Ledger  # the same key on a machine that knows nothing of the first
    validators: tuple[LocalAccount, ...]
    run: RunId

    @property
    def domain(self) -> Domain:
        return Domain(self.owner.chain_id, self.owner.coordinator)

    async def submit(self, slot: int = 0, version: int = 0, units: int = UNITS) -> Digest:
        receipt = await self.node.submit(self.run, Version(version), slot, ROOT, units, BEACON)
        events = await self.owner.events(self.run, receipt.block.number, receipt.block.number)
        (commitment,) = (event.commitment for event in events if isinstance(event, Submitted))
        return commitment

    def batch(self, *commitments: Digest, signers: Sequence[int] = (0, 1)) -> list[bytes]:
        return [sign(self.validators[i], self.domain, Batch(self.run, commitments)) for i in signers]

    async def settle(self, *commitments: Digest) -> None:
        await self.owner.settle(self.run, commitments, self.batch(*commitments))

    def fault(self, commitment: Digest, check: int, leaf: int = 1) -> Fault:
        return Fault(self.run, commitment, leaf, check, EVIDENCE)

    async def report(self, commitment: Digest, check: int, signers: Sequence[int], leaf: int = 1) -> None:
        fault = self.fault(commitment, check, leaf)
        signatures = [sign(self.validators[i], self.domain, fault) for i in signers]
        await self.owner.report(self.run, [fault] * len(signers), signatures)

    async def state(self, commitment: Digest) -> State:
        return (await self.owner.submission(self.run, commitment)).state

    async def allocation(self) -> tuple[int, int]:
        allocation = await self.owner.allocation(self.run, self.node.account)
        return allocation.amount, allocation.locked

    async def pot(self) -> tuple[int, int, int]:
        state = await self.owner.run_state(self.run)
        return state.pot, state.reserved, state.open

    async def events(self, kind: type[Event]) -> list[Event]:
        head = await self.owner.head()
        return [event for event in await self.owner.events(self.run, 0, head.number) if isinstance(event, kind)]


def run_params(trainer: Address, validators: Sequence[LocalAccount]) -> RunParams:
    return RunParams(
        trainer=trainer,
        validators=tuple(validator.address for validator in validators),
        quorum=2,
        price_per_unit=PRICE,
        submission_bond=BOND,
        fault_bond=0,
        penalty=PENALTY,
        max_units=20,
        max_open=2,
        async_level=1,
        checkpoint_interval=30,
        trainer_delay=0,
        windows=WINDOWS,
    )


def new_validators() -> tuple[LocalAccount, ...]:
    return tuple(sorted((Account.create() for _ in range(3)), key=lambda account: int(account.address, 16)))


async def authorize(provider: Ledger, node: LocalAccount, seconds: int = 3600, signer: LocalAccount | None = None):
    deadline = (await provider.head()).time + seconds
    message = NodeAuthorization(provider.account, node.address, await provider.node_nonce(node.address), deadline)
    signature = sign(signer or node, Domain(provider.chain_id, provider.staking), message)
    return await provider.authorize_node(node.address, deadline, signature)


def said(refusal: pytest.ExceptionInfo[Reverted]) -> tuple[str, dict[str, object]]:
    return refusal.value.name, refusal.value.values
