"""Runs in memory, by the rules of `Runs.sol`: their parameters, pot, keys and checkpoints.

Every function checks all before it changes anything, so that a revert leaves no trace.
"""

import hashlib
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ledger.base import (
    MAX_URL_BYTES,
    NOBODY,
    Address,
    Block,
    CheckpointPublished,
    Digest,
    EndpointSet,
    RelaySet,
    Run,
    RunEnded,
    RunId,
    RunParams,
    RunState,
    Version,
    Windows,
)
from ledger.errors import reverted
from ledger.memory.blocks import Call
from ledger.memory.staking import Staking, Token

MAX_VALIDATORS: Final = 32  # Runs.MAX_VALIDATORS


@dataclass(frozen=True, slots=True)
class Checkpoint:
    manifest_root: Digest
    block: Block


@dataclass(slots=True)
class RunRecord:
    """What changes about a run. `pot` is free for new submissions, `reserved` promised to open ones."""

    run: Run
    checkpoints: list[Checkpoint] = field(default_factory=list)
    pot: int = 0
    reserved: int = 0
    open: int = 0
    ended_at: int = 0

    @property
    def params(self) -> RunParams:
        return self.run.params

    @property
    def bonds(self) -> int:
        """What one open submission locks of its node's allocation."""
        return self.params.penalty + self.params.submission_bond

    def is_closed(self, time: int) -> bool:
        """Whether the run takes no more submissions."""
        return self.ended_at != 0 and time > self.ended_at + self.params.windows.grace

    def require_open_version(self, version: Version, time: int) -> None:
        latest = len(self.checkpoints) - 1
        if not 0 <= version <= latest:
            raise reverted("VersionNotOpen", {"version": version, "latest": max(latest, 0)})
        if latest - version <= self.params.async_level:
            return
        left_at = self.checkpoints[version + self.params.async_level + 1].block.time
        if time > left_at + self.params.windows.grace:
            raise reverted("VersionNotOpen", {"version": version, "latest": latest})


class Runs:
    """All runs of one coordinator, numbered from 1."""

    def __init__(self, token: Token, staking: Staking, address: Address) -> None:
        self.address = address
        self._token = token
        self._staking = staking
        self._records: dict[RunId, RunRecord] = {}

    @property
    def count(self) -> int:
        return len(self._records)

    def record(self, run: RunId) -> RunRecord:
        if run not in self._records:
            raise reverted("UnknownRun", {"run": run})
        return self._records[run]

    def state(self, run: RunId) -> RunState:
        record = self.record(run)
        return RunState(len(record.checkpoints), record.pot, record.reserved, record.open, record.ended_at)

    def create(self, call: Call, params: RunParams, spec: bytes) -> RunId:
        if params.trainer == NOBODY:
            raise reverted("ZeroAddress")
        if params.max_units == 0:
            raise reverted("InvalidMaxUnits", {"maxUnits": 0})
        self._require_windows(params.windows)
        _require_validators(params.validators, params.quorum)
        run = RunId(self.count + 1)
        spec_digest = Digest(hashlib.sha256(spec).digest())
        self._records[run] = RunRecord(Run(run, call.sender, params, spec, spec_digest, call.block.number))
        return run

    def fund(self, call: Call, run: RunId, amount: int) -> None:
        record = self.record(run)
        _require_going_on(record)
        self._token.move(call.sender, self.address, amount)
        record.pot += amount

    def end(self, call: Call, run: RunId) -> None:
        record = self.record(run)
        if call.sender not in (record.run.owner, record.params.trainer):
            raise reverted("NotOwner", {"caller": call.sender, "owner": record.run.owner})
        _require_going_on(record)
        record.ended_at = call.block.time
        call.emit(RunEnded(call.block, run))

    def withdraw_pot(self, call: Call, run: RunId) -> None:
        record = self.record(run)
        if call.sender != record.run.owner:
            raise reverted("NotOwner", {"caller": call.sender, "owner": record.run.owner})
        if not record.is_closed(call.block.time):
            raise reverted("RunNotEnded", {"run": run})
        if record.open:
            raise reverted("RunStillOpen", {"run": run, "open": record.open})
        amount, record.pot = record.pot, 0
        self._token.move(self.address, record.run.owner, amount)

    def set_relay(self, call: Call, run: RunId, relay: Address, approved: bool) -> None:
        owner = self.record(run).run.owner
        if call.sender != owner:
            raise reverted("NotOwner", {"caller": call.sender, "owner": owner})
        if relay == NOBODY:
            raise reverted("ZeroAddress")
        call.emit(RelaySet(call.block, run, relay, approved))

    def set_endpoint(self, call: Call, url: str) -> None:
        length = len(url.encode())
        if length > MAX_URL_BYTES:
            raise reverted("EndpointTooLong", {"length": length})
        call.emit(EndpointSet(call.block, call.sender, url))

    def publish(self, call: Call, run: RunId, version: Version, manifest_root: Digest) -> None:
        record = self.record(run)
        params = record.params
        if call.sender != params.trainer:
            raise reverted("NotTrainer", {"caller": call.sender, "trainer": params.trainer})
        _require_going_on(record)
        if version != len(record.checkpoints):
            raise reverted("VersionMismatch", {"expected": len(record.checkpoints), "actual": version})
        if record.checkpoints:
            allowed_at = record.checkpoints[-1].block.time + params.checkpoint_interval
            if call.block.time < allowed_at:
                raise reverted("CheckpointTooSoon", {"allowedAt": allowed_at})
        record.checkpoints.append(Checkpoint(manifest_root, call.block))
        call.emit(CheckpointPublished(call.block, run, version, manifest_root))

    def _require_windows(self, windows: Windows) -> None:
        least = windows.available + windows.audit + windows.confirm + 1
        if windows.settle_by < least:
            raise reverted("InvalidWindows", {"settleBy": windows.settle_by, "least": least})
        least = windows.settle_by + windows.confirm + windows.contest + windows.panel + 1
        if self._staking.unbonding < least:
            raise reverted("UnbondingTooShort", {"unbonding": self._staking.unbonding, "least": least})


def _require_validators(validators: tuple[Address, ...], quorum: int) -> None:
    if not 1 <= len(validators) <= MAX_VALIDATORS:
        raise reverted("InvalidValidators")
    if not 1 <= quorum <= len(validators):
        raise reverted("InvalidQuorum", {"quorum": quorum, "validators": len(validators)})
    numbers = [0, *(int(validator, 16) for validator in validators)]
    if any(left >= right for left, right in pairwise(numbers)):
        raise reverted("InvalidValidators")


def _require_going_on(record: RunRecord) -> None:
    if record.ended_at:
        raise reverted("RunIsEnded", {"run": record.run.id})
