"""What became of a network that was killed: from the chain's events, and from the journals and files on its disks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from random_kills.network import BATCH, Outcome
from random_kills.opening import journalled

from ledger.base import Address, Digest, Settled, State, Version
from ledger.commitments import commitment
from ledger.journal import Entry, Stage
from node.devnet.cast import Player
from node.record import Submission
from node.rollouts.assignment import file_units
from node.rollouts.file import decode_file, file_root, size_limit
from node.training.facts import read_facts, saved_states

KINDS = ("worker", "validator", "trainer", "relay")
SENT_FOR_GOOD = {Stage.MINED, Stage.SENT}

Row = dict[str, Any]


@dataclass(slots=True)
class Figures:
    """`failures` say what does not hold; empty means success."""

    roles: list[Row] = field(default_factory=list)
    workers: list[Row] = field(default_factory=list)
    training: Row = field(default_factory=dict)
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def tables(self) -> dict[str, list[Row]]:
        return {"processes": self.roles, "work": self.workers, "training": [self.training]}

    def as_json(self) -> Row:
        return {
            "seconds": round(self.seconds, 1), "processes": self.roles, "work": self.workers,
            "training": self.training, "failures": self.failures,
        }  # fmt: skip

    def require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.failures.append(otherwise)


async def count(outcome: Outcome) -> Figures:
    """Every figure, and what of them is not as it must be."""
    figures = Figures(seconds=outcome.seconds)
    for kind in KINDS:
        figures.roles.append(_processes(outcome, kind))
    settled = await _settlements(outcome)
    for player in outcome.players("worker"):
        figures.workers.append(await _work(outcome, player, settled))
    figures.training = _training(outcome)
    for crash in outcome.crashes:
        figures.failures.append(crash)
    for name, code in outcome.codes.items():
        figures.require(code == 0, f"{name} left with {code}")
    _judge(figures)
    return figures


def _judge(figures: Figures) -> None:
    for row in figures.workers:
        for what in ("open", "voided", "slashed", "doubled", "lost", "unpaid"):
            figures.require(not row[what], f"{row['node']}: {what} {row[what]}")
    figures.require(sum(row["settled"] for row in figures.workers) > 0, "nothing was paid at all")
    for what in ("groups used twice", "steps repeated or skipped"):
        figures.require(not figures.training[what], f"training: {what} {figures.training[what]}")
    figures.require(figures.training["steps"] > 0, "no step was made")
    for row in figures.roles:
        figures.require(not row["forgotten"], f"{row['role']}: {row['forgotten']} transactions neither mined nor lost")


def _processes(outcome: Outcome, kind: str) -> Row:
    players = outcome.players(kind)
    names = {player.name for player in players}
    stages = Counter(entry.stage for player in players for entry in journalled(player.home))
    return {
        "role": kind,
        "processes": len(players),
        "kills": sum(outcome.kills[name] for name in names),
        "restarts": sum(outcome.starts[name] - 1 for name in names),
        "crashes": sum(crash.startswith(kind) for crash in outcome.crashes),
        "transactions": stages[Stage.MINED],
        "in vain": stages[Stage.REVERTED],
        "forgotten": stages[Stage.SENT],
    }


# --- Work


async def _settlements(outcome: Outcome) -> Counter[Digest]:
    """How often each commitment was settled: events are read anew, since a record keeps one state of each."""
    ledger, head = outcome.ledger, await outcome.ledger.head()
    events = await ledger.events(outcome.record.run.id, ledger.origin_block, head.number)
    return Counter(event.commitment for event in events if isinstance(event, Settled))


async def _work(outcome: Outcome, player: Player, settled: Counter[Digest]) -> Row:
    record, node = outcome.record, player.node
    own = [s for s in record.submissions.values() if s.made.node == node]
    states = Counter(s.state for s in own)
    late, lost = await _uncommitted(outcome, player)
    earned = sum(s.reward for s in own)
    claimed = sum(claim.amount for claim in record.claims if claim.provider == player.address)
    return {
        "node": player.name,
        "submissions": len(own),
        "settled": states[State.SETTLED],
        "expired": states[State.EXPIRED],
        "voided": states[State.VOIDED],
        "slashed": states[State.SLASHED],
        "open": states[State.SUBMITTED] + states[State.FAULTED],
        "doubled": _doubled(own, journalled(player.home), settled),
        "lost": lost + _vanished(outcome, player),
        "too late": late,
        "earned": f"{earned / 1e18:.2f}",
        "unpaid": earned - claimed,
    }


def _doubled(own: list[Submission], entries: list[Entry], settled: Counter[Digest]) -> int:
    """Slots with two commitments or two signatures, and commitments that were paid twice."""
    slots = Counter((s.made.version, s.made.slot) for s in own)
    claims: dict[str, set[bytes]] = {}
    for entry in entries:
        if entry.claim:
            claims.setdefault(entry.claim.slot, set()).add(entry.claim.commitment)
    paid = [settled[s.made.commitment] for s in own]
    return sum(n > 1 for n in slots.values()) + sum(len(c) > 1 for c in claims.values()) + sum(n > 1 for n in paid)


def _vanished(outcome: Outcome, player: Player) -> int:
    """Commitments that were signed, and are not on chain though nothing refused them."""
    signed = {e.claim.commitment for e in journalled(player.home) if e.claim and e.stage in SENT_FOR_GOOD}
    return len(signed - outcome.record.submissions.keys())


async def _uncommitted(outcome: Outcome, player: Player) -> tuple[int, int]:
    """Finished files that the chain does not know: how many it would not take any more when their worker was there
    again, and how many were passed over."""
    late = lost = 0
    for path in player.home.glob("runs/*/*/rollouts/*.rollouts"):
        name = Digest(bytes.fromhex(path.stem))
        if name not in outcome.record.submissions:
            version = await _version(outcome, player.node, name, path.read_bytes())
            passed_over = version is None or _committed_later(outcome, player.node, version)
            late, lost = late + (not passed_over), lost + passed_over
    return late, lost


async def _version(outcome: Outcome, node: Address, name: Digest, data: bytes) -> Version | None:
    """For which version the file was made: that in which its root and the next slot give its name."""
    record, ledger, spec = outcome.record, outcome.ledger, outcome.spec
    root, units = file_root(data, size_limit(spec)), file_units(decode_file(data, spec), spec)
    for version in map(Version, range(len(record.checkpoints))):
        slot = len(record.commits.get((version, node), ()))
        block = record.beacon_block(version, node, slot)
        beacon = None if block is None else await ledger.beacon(block)
        if beacon is None:
            continue
        run = record.run.id
        if name == commitment(ledger.chain_id, ledger.coordinator, run, node, version, slot, root, units, beacon):
            return version
    return None


def _committed_later(outcome: Outcome, node: Address, version: Version) -> bool:
    """Whether `node` committed in a newer version while `version` would still have been taken."""
    record = outcome.record
    closing = version + record.run.params.async_level + 1
    closed = (
        record.checkpoints[closing].block.time + record.run.params.windows.grace
        if closing < len(record.checkpoints)
        else float("inf")
    )
    return any(
        made.block.time <= closed
        for (later, who), commits in record.commits.items()
        for made in commits
        if later > version and who == node
    )


# --- Training


def _training(outcome: Outcome) -> Row:
    """The trainer's state of the last published step: each step takes so many groups, and none is taken twice."""
    (trainer,) = outcome.players("trainer")
    steps = len(outcome.record.checkpoints) - 1
    per_step = BATCH // outcome.spec.slot.group_size
    roots = trainer.home.glob("runs/*/*/training/states")
    states = [read_facts(folder) for root in roots for _, folder in saved_states(root)]
    used = {state.version: len(state.consumed) for state in states}
    return {
        "steps": steps,
        "made as the run ended": max(0, max(used, default=0) - steps),
        "distinct weights": len({checkpoint.manifest_root for checkpoint in outcome.record.checkpoints}),
        "groups used": used.get(steps, 0),
        "groups used twice": steps * per_step - used.get(steps, 0),
        "steps repeated or skipped": int(max(used, default=0) - steps not in {0, 1}),
    }
