"""The record of a run: what the chain's events say so far, folded in chain order.

Everything here can be recomputed by anyone from the chain alone; nothing in it is a node's own word. Events that do
not fit together, or not to the contract's state, are read anew from the beginning: one was made up, or left out.
"""

import asyncio
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, fields, replace
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
from ledger.errors import Contradicted, Unreachable
from node.clock import Clock, SystemClock
from node.log import warn
from node.verdicts import Check

MAX_ENDPOINTS = 1 << 16  # remembered, of all who announce one: for the gas alone anyone may
BLOCKS_AT_ONCE = 2_000  # of one reading; public RPC endpoints refuse wider ranges
COMPARE_SECONDS = 60.0  # between two looks at the contract's state
REREAD_SECONDS = 300.0  # between two readings from the beginning


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


class _Contradiction(Unreachable):
    """No endpoint gives what can follow what was read: one lies, or left events out."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the chain's answer is not believed: {what}. An RPC endpoint lies or leaves events out: if this lasts, "
            "start again with another --rpc"
        )


@dataclass(frozen=True, slots=True)
class _Promise:
    """What the events up to `block` have to come to, by the contract's state."""

    block: int
    checkpoints: int
    ended: bool
    open: int | None  # None where a block came while it was asked for


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
    clock: Clock = field(default_factory=SystemClock, compare=False)
    promise: _Promise | None = field(default=None, compare=False)
    compared: float | None = field(default=None, compare=False)  # when the contract's state was looked at, monotonic
    amiss: int = field(default=0, compare=False)  # how many more were open by the contract's state, last time
    closed: bool = field(default=False, compare=False)  # the contract says too that the run is over
    reread: float | None = field(default=None, compare=False)  # when all was last read anew, monotonic
    troubled: float | None = field(default=None, compare=False)  # since when nothing fits together

    async def sync(self, ledger: Ledger) -> list[Event]:
        """Reads up to the last confirmed block; returns what was new. One reading at a time: no event counts twice.

        Raises:
            Unreachable: also where no endpoint's answer can be true; what was read before stays applied.
            Contradicted: that has lasted, and reading all anew has not helped.
            Reorganised: what was read before is no longer so.
        """
        async with self.reading:
            try:
                news = await self._read_on(ledger)
            except _Contradiction as lie:
                news = await self._read_anew(ledger, lie)
            self.troubled = None
            return news

    async def _read_anew(self, ledger: Ledger, lie: _Contradiction) -> list[Event]:
        """Replaces what is known by a reading from the beginning, if that fits together, and at most now and then."""
        now = self.clock.monotonic()
        self.troubled = now if self.troubled is None else self.troubled
        if self.reread is not None and now - self.reread < REREAD_SECONDS:
            raise lie
        if self.reread is not None and now - self.troubled >= REREAD_SECONDS:
            raise Contradicted(str(lie)) from lie
        self.reread = now
        warn("reading the chain anew", reason=lie)
        fresh = Record(self.run, clock=self.clock, reading=self.reading, reread=now, compared=now)
        news = [event for event in await fresh._read_on(ledger) if not self._knows(event)]
        for each in fields(self):
            setattr(self, each.name, getattr(fresh, each.name))
        return news

    def _knows(self, event: Event) -> bool:
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
        await self._compare(ledger)
        return news

    async def _possible_events(self, ledger: Ledger, first: int, last: int) -> list[Event]:
        """What an endpoint says that can be. Raises: _Contradiction: one lied, or left out something earlier."""
        while True:
            events = await ledger.events(self.run.id, first, last)
            lie = self._first_impossible(events) or await self._made_up_end(ledger, events)
            if lie is None:
                return events
            if not ledger.doubt():
                raise _Contradiction(f"{lie} cannot follow what it said before")

    async def _made_up_end(self, ledger: Ledger, events: Sequence[Event]) -> Event | None:
        """The run's end, where the contract knows of none: all roles leave at that word."""
        end = next((event for event in events if isinstance(event, RunEnded)), None)
        return end if end is not None and not (await ledger.run_state(self.run.id)).ended_at else None

    async def _compare(self, ledger: Ledger) -> None:
        """Holds what the events come to against the contract's state. Raises: _Contradiction."""
        promise = self.promise
        if promise is not None and promise.block < self.next_block:
            self.promise = None
            self._require(promise)
        now = self.clock.monotonic()
        self.compared = now if self.compared is None else self.compared
        if self.promise is None and now - self.compared >= COMPARE_SECONDS:
            self.compared = now
            self.promise = await self._promised(ledger)
        if self._seems_over and not self.closed:
            state = await ledger.run_state(self.run.id)
            self.closed = bool(state.ended_at) and not state.open

    async def _promised(self, ledger: Ledger) -> _Promise:
        before = await ledger.head()
        state = await ledger.run_state(self.run.id)
        block = max(self.head.number, (await ledger.head()).number)
        return _Promise(block, state.checkpoints, bool(state.ended_at), state.open if block == before.number else None)

    def _require(self, promise: _Promise) -> None:
        """Raises: _Contradiction: an event was left out, or made up."""
        if len(self.checkpoints) < promise.checkpoints:
            raise _Contradiction(f"it has {promise.checkpoints} versions, and told of {len(self.checkpoints)}")
        if promise.ended and self.ended is None:
            raise _Contradiction("the run has ended, and it did not tell")
        if promise.open is not None:
            before, self.amiss = self.amiss, promise.open - self._open_at(promise.block)
            if self.amiss and self.amiss == before:  # once may be a node that lags
                raise _Contradiction(f"{promise.open} submissions are open, {-self.amiss:+d} by what it told")

    def _open_at(self, block: int) -> int:
        """How many submissions were open after `block`."""
        known = (s for s in self.submissions.values() if s.made.block.number <= block)
        return sum(s.concluded is None or s.concluded.number > block for s in known)

    def _first_impossible(self, events: Sequence[Event]) -> Event | None:
        """The first that the contract cannot have made after those before it and those that are applied."""
        versions, made, final = len(self.checkpoints), set[Digest](), set[Digest]()
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
                    known = event.commitment in made or event.commitment in self.submissions
                    over = event.commitment in final or self.is_final(event.commitment)
                    possible = known and not over and _has_check(event)
                    if not isinstance(event, Reported | Convicted):
                        final.add(event.commitment)
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

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and nothing can be submitted, or is open, any more; the contract says so too."""
        return self.closed and self._seems_over

    @property
    def _seems_over(self) -> bool:
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
