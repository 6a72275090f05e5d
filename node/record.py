"""The record of a run: what the chain's events say so far, folded in chain order.

Everything here can be recomputed by anyone from the chain alone; nothing in it is a node's own word.
"""

import asyncio
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from ledger.base import (
    UNDECIDED,
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
    Ledger,
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
from ledger.errors import Unreachable
from node.verdicts import Check

MAX_ENDPOINTS = 1 << 16  # remembered, of all who announce one: for the gas alone anyone may
BLOCKS_AT_ONCE = 2_000  # of one reading; public RPC endpoints refuse wider ranges


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
    """Of one run; `sync` reads on. A submission's place in `commits` is its slot."""

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
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def sync(self, ledger: Ledger) -> list[Event]:
        """Reads up to the last confirmed block; returns what was new. One reading at a time: no event counts twice.

        Raises:
            Unreachable: also where no endpoint's answer can be true; what was read before stays applied.
            Reorganised: what was read before is no longer so.
        """
        async with self.reading:
            return await self._read_on(ledger)

    async def _read_on(self, ledger: Ledger) -> list[Event]:
        head = await ledger.head()
        confirmed = head.number - ledger.confirmations
        news: list[Event] = []
        first = max(self.next_block, ledger.origin_block)
        while first <= confirmed:
            last = min(first + BLOCKS_AT_ONCE - 1, confirmed)
            events = await self._possible_events(ledger, first, last)
            for event in events:
                self._apply(event)
            news += events
            first = self.next_block = last + 1
        self.head = head
        return news

    async def _possible_events(self, ledger: Ledger, first: int, last: int) -> list[Event]:
        """What an endpoint says that can be. Raises: Unreachable: an endpoint lied, or left out something earlier."""
        while True:
            events = await ledger.events(self.run.id, first, last)
            lie = self._first_impossible(events)
            if lie is None:
                return events
            if not ledger.doubt():
                raise Unreachable(
                    f"the chain's answer is not believed: {lie} cannot follow what it said before. An RPC endpoint "
                    "lies or leaves events out: if this lasts, start again with another --rpc"
                )

    def _first_impossible(self, events: Sequence[Event]) -> Event | None:
        """The first that the contract cannot have made after those before it and those that are applied."""
        versions, made = len(self.checkpoints), set[Digest]()
        slots = dict[tuple[Version, Address], int]()
        for event in events:
            match event:
                case CheckpointPublished():
                    possible = event.version == versions
                    versions += 1
                case Submitted():
                    place = event.version, event.node
                    slot = slots.setdefault(place, len(self.commits.get(place, ())))
                    known = event.commitment in made or event.commitment in self.submissions
                    possible = event.version < versions and event.slot == slot and not known
                    made.add(event.commitment)
                    slots[place] += 1
                case Settled() | Reported() | Convicted() | Voided() | Expired() | SlashExecuted():
                    possible = (event.commitment in made or event.commitment in self.submissions) and _has_check(event)
                case _:
                    possible = True
            if not possible:
                return event
        return None

    def _apply(self, event: Event) -> None:
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

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and nothing can be submitted, or is open, any more."""
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


def _has_check(event: Settled | Reported | Convicted | Voided | Expired | SlashExecuted) -> bool:
    """Whether the check that `event` names, if it names one, is one of the protocol's."""
    match event:
        case Reported() | Convicted():
            return event.check in set(Check)
        case Voided():
            return event.check == UNDECIDED or event.check in set(Check)
        case _:
            return True
