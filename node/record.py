"""The record of a run: what the chain's events say so far, folded in chain order.

Everything here can be recomputed by anyone from the chain alone; nothing in it is a node's own word.
"""

from collections.abc import Container
from dataclasses import dataclass, field, fields, replace
from typing import assert_never

from ledger.base import (
    Address,
    Allocated,
    Block,
    CheckpointPublished,
    Claimed,
    Convicted,
    Digest,
    EndpointSet,
    Event,
    Expired,
    RelaySet,
    Reported,
    Run,
    RunEnded,
    Settled,
    SlashExecuted,
    State,
    Submitted,
    Version,
    Voided,
)
from node.verdicts import Check

MAX_ENDPOINTS = 1 << 16  # remembered, of all who announce one: for the gas alone anyone may


@dataclass(frozen=True, slots=True)
class Submission:
    """One commitment and what became of it. `check` names the finding that voided or convicted it."""

    made: Submitted
    state: State = State.SUBMITTED
    reward: int = 0
    check: int | None = None
    conviction: Convicted | None = None
    slash: SlashExecuted | None = None
    reports: tuple[Reported, ...] = ()
    concluded: Block | None = None


@dataclass(slots=True)
class Record:
    """Of one run, as far as it was read. A submission's place in `commits` is its slot."""

    run: Run
    head: Block = field(default=Block(0, 0))
    next_block: int = 0
    checkpoints: list[CheckpointPublished] = field(default_factory=list)
    submissions: dict[Digest, Submission] = field(default_factory=dict)
    unfinished: dict[Digest, None] = field(default_factory=dict)  # those without a final state, oldest first
    commits: dict[tuple[Version, Address], list[Submitted]] = field(default_factory=dict)
    allocated: dict[Address, Allocated] = field(default_factory=dict)  # the first one of each node
    endpoints: dict[Address, str] = field(default_factory=dict)
    relays: set[Address] = field(default_factory=set)
    claims: list[Claimed] = field(default_factory=list)
    ended: Block | None = None
    closed: bool = False  # the contract says too that the run is over

    def become(self, other: "Record") -> None:
        """Takes over what `other`, of the same run, says; whoever holds this one sees it."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def knows(self, event: Event) -> bool:
        """Whether it was applied; of what can come several times, whether its block was read."""
        match event:
            case CheckpointPublished():
                return event.version < len(self.checkpoints)
            case Submitted():
                return event.commitment in self.submissions
            case Settled() | Voided() | Expired() | SlashExecuted():
                return self.is_final(event.commitment)
            case RunEnded():
                return self.ended is not None
            case _:
                return event.block.number < self.next_block

    def apply(self, event: Event) -> None:
        """Folds in what came next; `node.reading` looks first whether it can have."""
        match event:
            case CheckpointPublished():
                self.checkpoints.append(event)
            case Submitted():
                self.submissions[event.commitment] = Submission(event)
                self.unfinished[event.commitment] = None
                self.commits.setdefault((event.version, event.node), []).append(event)
            case Settled() | Reported() | Convicted() | Voided() | Expired() | SlashExecuted():
                self._change(event)
            case RelaySet():
                (self.relays.add if event.approved else self.relays.discard)(event.relay)
            case EndpointSet():
                self._announce(event.who, event.url)
            case Allocated():
                self.allocated.setdefault(event.node, event)
            case Claimed():
                self.claims.append(event)
            case RunEnded():
                self.ended = event.block
            case _:
                assert_never(event)

    def _announce(self, who: Address, url: str) -> None:
        """Takes down an endpoint; of too many, the longest known of somebody without a part in the run goes."""
        self.endpoints.pop(who, None)
        self.endpoints[who] = url
        if len(self.endpoints) > MAX_ENDPOINTS:
            params = self.run.params
            parts = {*params.validators, params.trainer, *self.relays}
            stranger = next((each for each in self.endpoints if each not in parts and each not in self.allocated), who)
            del self.endpoints[stranger]

    def _change(self, event: Settled | Reported | Convicted | Voided | Expired | SlashExecuted) -> None:
        known = self.submissions[event.commitment]
        match event:
            case Settled():
                new = replace(known, state=State.SETTLED, reward=event.reward, concluded=event.block)
            case Reported():
                frozen = known.state if known.state.final or not Check(event.check).slashes else State.FAULTED
                new = replace(known, state=frozen, reports=(*known.reports, event))
            case Convicted():
                new = replace(known, conviction=event, check=event.check)
            case Voided():
                new = replace(known, state=State.VOIDED, check=event.check, concluded=event.block)
            case Expired():
                new = replace(known, state=State.EXPIRED, concluded=event.block)
            case SlashExecuted():
                new = replace(known, state=State.SLASHED, slash=event, concluded=event.block)
        self.submissions[event.commitment] = new
        if new.state.final:
            self.unfinished.pop(event.commitment, None)

    @property
    def latest(self) -> Version | None:
        """The newest published version, or None before version 0."""
        return self.checkpoints[-1].version if self.checkpoints else None

    def root(self, version: Version) -> Digest | None:
        return self.checkpoints[version].manifest_root if 0 <= version < len(self.checkpoints) else None

    def is_weights(self, root: Digest) -> bool:
        """Whether a version has that root."""
        return any(checkpoint.manifest_root == root for checkpoint in self.checkpoints)

    def is_open(self, version: Version) -> bool:
        """Whether `version` takes submissions at the head's time (protocol, "Contract surface": open)."""
        windows, level = self.run.params.windows, self.run.params.async_level
        if self.latest is None or not 0 <= version <= self.latest:
            return False
        if self.ended is not None and self.head.time > self.ended.time + windows.grace:
            return False
        if self.latest <= version + level:
            return True
        return self.head.time <= self.checkpoints[version + level + 1].block.time + windows.grace

    def open_at(self, block: int) -> int:
        """How many submissions were open after `block`."""
        known = (s for s in self.submissions.values() if s.made.block.number <= block)
        return sum(s.concluded is None or s.concluded.number > block for s in known)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and nothing can be submitted, or is open, any more; the contract says so too."""
        return self.closed and self.seems_over

    @property
    def seems_over(self) -> bool:
        """Whether it is, by the events alone."""
        if self.ended is None or self.unfinished:
            return False
        return self.head.time > self.ended.time + self.run.params.windows.grace

    def beacon_block(self, version: Version, node: Address, slot: int) -> int | None:
        """The block whose beacon seeds `slot` (protocol, "Beacons"), or None while it is not there."""
        if slot >= 2:
            commits = self.commits.get((version, node), [])
            return commits[slot - 2].block.number if len(commits) >= slot - 1 else None
        allocated = self.allocated.get(node)
        if allocated is None or not 0 <= version < len(self.checkpoints):
            return None
        return max(self.checkpoints[version].block.number, allocated.block.number)

    def open_submissions(self) -> tuple[Submission, ...]:
        """Those without a final state, oldest first."""
        return tuple(self.submissions[commitment] for commitment in self.unfinished)

    def made_in(self, versions: Container[int]) -> tuple[Submission, ...]:
        """The submissions of `versions`, final or not."""
        commits = (made for (version, _), made in self.commits.items() if version in versions)
        return tuple(self.submissions[made.commitment] for same in commits for made in same)

    def is_final(self, commitment: Digest) -> bool:
        found = self.submissions.get(commitment)
        return found is not None and found.state.final

    def due(self, submission: Submission) -> int:
        """The time from which a submission can be settled."""
        windows = self.run.params.windows
        return submission.made.block.time + windows.available + windows.audit

    def audit_time(self, submission: Submission) -> int:
        """The first block at or after this time gives the audit beacon."""
        return submission.made.block.time + self.run.params.windows.available
