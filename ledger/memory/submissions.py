"""A submission's life in memory, by the rules of `RunCoordinator.sol`: from its commitment to its one end.

Every function checks all before it changes anything, so that a revert leaves no trace.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ledger.base import (
    NOBODY,
    UNDECIDED,
    Address,
    Claimed,
    Convicted,
    Digest,
    Expired,
    Fault,
    Reported,
    RunId,
    RunParams,
    Settled,
    SlashExecuted,
    State,
    SubmissionState,
    Submitted,
    Version,
    Voided,
)
from ledger.commitments import commitment as commitment_of
from ledger.errors import reverted
from ledger.memory.blocks import Call
from ledger.memory.quorum import Signers
from ledger.memory.reports import Case
from ledger.memory.rules import RunRecord, Runs
from ledger.memory.staking import Staking, Token

MAX_BATCH: Final = 64  # RunCoordinator.MAX_BATCH
SLASHING: Final = frozenset({8, 9})  # protocol, "Check codes and what they cost"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a node commits to in one transaction."""

    run: RunId
    version: Version
    slot: int
    root: Digest
    units: int
    beacon: Digest


@dataclass(slots=True)
class Submission:
    node: Address
    submitted_at: int
    units: int
    state: State = State.SUBMITTED

    def due(self, params: RunParams) -> int:
        return self.submitted_at + params.windows.available + params.windows.audit

    def is_expired(self, params: RunParams, time: int) -> bool:
        """Past its time a submission can only expire, whether or not somebody has said so yet."""
        return time > self.submitted_at + params.windows.settle_by

    def is_payable(self, params: RunParams, time: int) -> bool:
        return self.state == State.SUBMITTED and time >= self.due(params) and not self.is_expired(params, time)

    def is_reportable(self, params: RunParams, time: int) -> bool:
        """Whether a report can still change what becomes of it."""
        return self.state == State.FAULTED or (self.state == State.SUBMITTED and not self.is_expired(params, time))


@dataclass(slots=True)
class _Progress:
    version: int = 0  # the latest that the node has committed in
    open: int = 0


class Submissions:
    """All submissions of one coordinator, and what their providers have earned."""

    def __init__(self, token: Token, staking: Staking, runs: Runs, chain_id: int) -> None:
        self.slots: defaultdict[tuple[RunId, Version, Address], int] = defaultdict(int)
        self.rewards: defaultdict[Address, int] = defaultdict(int)
        self._token = token
        self._staking = staking
        self._runs = runs
        self._chain_id = chain_id
        self._signers = Signers(chain_id, runs.address)
        self._progress: defaultdict[tuple[RunId, Address], _Progress] = defaultdict(_Progress)
        self._submissions: dict[tuple[RunId, Digest], Submission] = {}
        self._cases: defaultdict[tuple[RunId, Digest], Case] = defaultdict(Case)

    def open_of(self, run: RunId, node: Address) -> int:
        return self._progress[run, node].open

    def state(self, run: RunId, commitment: Digest) -> SubmissionState:
        found = self._submissions.get((run, commitment))
        if found is None:
            return SubmissionState(NOBODY, 0, 0, State.NONE)
        return SubmissionState(found.node, found.submitted_at, found.units, found.state)

    def case(self, run: RunId, commitment: Digest) -> Case:
        return self._cases[run, commitment]

    # --- Calls

    def submit(self, call: Call, entry: Entry) -> Digest:
        record = self._runs.record(entry.run)
        commitment = commitment_of(
            self._chain_id, self._runs.address, entry.run, call.sender, entry.version, entry.slot, entry.root,
            entry.units, entry.beacon,
        )  # fmt: skip
        self._require_submittable(call, record, entry, commitment)
        if not 0 < entry.units <= record.params.max_units:
            raise reverted("InvalidUnits", {"units": entry.units, "maxUnits": record.params.max_units})
        pay = entry.units * record.params.price_per_unit
        if pay > record.pot:
            raise reverted("PotTooSmall", {"wanted": pay, "available": record.pot})
        self._staking.require_unlocked(entry.run, call.sender, record.bonds)
        self._open(call, record, entry, commitment, pay)
        return commitment

    def settle(self, call: Call, run: RunId, commitments: Sequence[Digest], signatures: Sequence[bytes]) -> None:
        record = self._runs.record(run)
        _require_batch(len(commitments))
        self._signers.require_batch(record.params, run, commitments, signatures)
        for commitment in commitments:
            submission = self._submissions.get((run, commitment))
            if submission is not None and submission.is_payable(record.params, call.block.time):
                self._settle(call, record, commitment, submission)

    def report(self, call: Call, run: RunId, faults: Sequence[Fault], signatures: Sequence[bytes]) -> None:
        record = self._runs.record(run)
        _require_batch(len(faults))
        if len(faults) != len(signatures):
            raise reverted("LengthMismatch", {"left": len(faults), "right": len(signatures)})
        for finding in self._signers.findings(record.params, run, faults, signatures, SLASHING):
            submission = self._submissions.get((run, finding.fault.commitment))
            if submission is None or not submission.is_reportable(record.params, call.block.time):
                continue
            if finding.fault.check in SLASHING:
                self._count(call, record, finding.fault, finding.validator, submission)
            elif not self.case(run, finding.fault.commitment).executable_at:
                self._void(call, record, finding.fault.commitment, submission, finding.fault.check)

    def conclude(self, call: Call, run: RunId, commitments: Sequence[Digest]) -> None:
        record = self._runs.record(run)
        _require_batch(len(commitments))
        for commitment in commitments:
            submission = self._submissions.get((run, commitment))
            if submission is None:
                continue
            if submission.state == State.SUBMITTED and submission.is_expired(record.params, call.block.time):
                self._end(record, submission, State.EXPIRED)
                call.emit(Expired(call.block, run, commitment))
            elif submission.state == State.FAULTED:
                self._conclude_faulted(call, record, commitment, submission)

    def claim(self, call: Call) -> int:
        amount = self.rewards[call.sender]
        if amount == 0:
            raise reverted("NothingToClaim", {"provider": call.sender})
        self.rewards[call.sender] = 0
        self._token.move(self._runs.address, call.sender, amount)
        call.emit(Claimed(call.block, call.sender, amount))
        return amount

    # --- Guards

    def _require_submittable(self, call: Call, record: RunRecord, entry: Entry, commitment: Digest) -> None:
        if call.sender not in self._staking.providers:
            raise reverted("NodeNotAuthorized", {"node": call.sender})
        if record.is_closed(call.block.time):
            raise reverted("RunIsEnded", {"run": entry.run})
        record.require_open_version(entry.version, call.block.time)
        if (entry.run, commitment) in self._submissions:
            raise reverted("AlreadySubmitted", {"commitment": commitment})
        slot = self.slots[entry.run, entry.version, call.sender]
        if entry.slot != slot:
            raise reverted("SlotMismatch", {"expected": entry.slot, "actual": slot})
        progress = self._progress[entry.run, call.sender]
        if entry.version < progress.version:
            raise reverted("VersionBehind", {"version": entry.version, "current": progress.version})
        if progress.open >= record.params.max_open:
            raise reverted("TooManyOpen", {"open": progress.open, "maxOpen": record.params.max_open})

    # --- Effects

    def _open(self, call: Call, record: RunRecord, entry: Entry, commitment: Digest, pay: int) -> None:
        record.pot -= pay
        record.reserved += pay
        record.open += 1
        self.slots[entry.run, entry.version, call.sender] += 1
        progress = self._progress[entry.run, call.sender]
        progress.version = entry.version
        progress.open += 1
        self._submissions[entry.run, commitment] = Submission(call.sender, call.block.time, entry.units)
        self._staking.lock(entry.run, call.sender, record.bonds)
        call.emit(
            Submitted(
                call.block, entry.run, commitment, call.sender, entry.version, entry.slot, entry.root, entry.units,
                entry.beacon,
            )
        )  # fmt: skip

    def _end(self, record: RunRecord, submission: Submission, end: State) -> int:
        """Frees what the submission locked and reserved; returns its pay, which goes back to the pot unless settled."""
        pay = submission.units * record.params.price_per_unit
        submission.state = end
        record.reserved -= pay
        if end != State.SETTLED:
            record.pot += pay
        record.open -= 1
        self._progress[record.run.id, submission.node].open -= 1
        self._staking.unlock(record.run.id, submission.node, record.bonds)
        return pay

    def _settle(self, call: Call, record: RunRecord, commitment: Digest, submission: Submission) -> None:
        pay = self._end(record, submission, State.SETTLED)
        provider = self._staking.providers[submission.node]
        self.rewards[provider] += pay
        call.emit(Settled(call.block, record.run.id, commitment, provider, pay))

    def _count(self, call: Call, record: RunRecord, fault: Fault, validator: Address, submission: Submission) -> None:
        windows = record.params.windows
        case = self._cases[fault.run, fault.commitment]
        count = case.vote(fault.leaf, validator, call.block.time, submission.due(record.params), windows.confirm)
        if count == 0:
            return
        submission.state = State.FAULTED
        run, commitment, leaf, check = fault.run, fault.commitment, fault.leaf, fault.check
        call.emit(Reported(call.block, run, commitment, validator, leaf, check, fault.evidence, count))
        executable_at = call.block.time + windows.contest
        if count == record.params.quorum and case.convict(executable_at):
            call.emit(Convicted(call.block, run, commitment, leaf, check, executable_at))

    def _conclude_faulted(self, call: Call, record: RunRecord, commitment: Digest, submission: Submission) -> None:
        run, time = record.run.id, call.block.time
        case = self._cases[run, commitment]
        if case.is_undecided(time, submission.due(record.params), record.params.windows.confirm):
            self._void(call, record, commitment, submission, UNDECIDED)
        elif case.executable_at and time >= case.executable_at:
            penalty = record.params.penalty
            self._end(record, submission, State.SLASHED)
            self._staking.slash(call, run, submission.node, penalty)
            call.emit(SlashExecuted(call.block, run, commitment, submission.node, penalty, call.transaction))

    def _void(self, call: Call, record: RunRecord, commitment: Digest, submission: Submission, check: int) -> None:
        bond = 0 if check == UNDECIDED else record.params.submission_bond
        self._end(record, submission, State.VOIDED)
        self._staking.slash(call, record.run.id, submission.node, bond)
        call.emit(Voided(call.block, record.run.id, commitment, check, bond))


def _require_batch(size: int) -> None:
    if not 1 <= size <= MAX_BATCH:
        raise reverted("BatchSize", {"size": size})
