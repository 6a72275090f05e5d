"""How a wallet stands in a run: what it has, and what became of every piece of work of its keys, each with the reason.

The chain has most of it. This machine's files add what never got there: files that were made and not committed,
transactions that are signed and not final, what a validator signed, what a trainer used. Other validators add who
holds a file and what was measured. Every source may be missing; the answer says which were there.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledger.base import Address, Ledger
from ledger.messages import Domain
from node.config import Home, StateFolder
from node.files import disk_refused
from node.leftovers import pending, uncommitted
from node.outcomes import Known, Summary, When, block_time, outcome
from node.p2p.standing import read_standing
from node.peers.client import PeerClient
from node.queries import read_record
from node.record import Record, Submission
from node.roles.casebook import Case
from node.roles.lending import read_lending
from node.runspec import RunSpec
from node.shards.layout import CHECKPOINTS
from node.shards.room import taken_bytes
from node.statements import Statements, said_have
from node.training.facts import latest_facts
from node.transport import session
from node.verdicts import check_name

NEWEST = 50  # submissions shown of a role
NO_ROLE = (
    "this wallet has no part in the run, so nobody connects to it: a relay needs the owner's `intellect-node run "
    "approve`, a worker needs `intellect-node join`"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose standing; `node` is the key that `join` made. `home` and `peers` are sources that may be left out."""

    provider: Address
    node: Address | None
    home: Home | None = None
    peers: PeerClient | None = None
    newest: int = NEWEST
    when: When = block_time


async def standing_of(ledger: Ledger, run: int, asked: Asked, private: bool | None) -> Summary:
    """As `standing`, and validators are asked, at private addresses too if `private` says so; None asks nobody."""
    if private is None:
        return await standing(ledger, run, asked)
    async with session(private) as http:
        return await standing(ledger, run, replace(asked, peers=PeerClient(http)))


async def standing(ledger: Ledger, run: int, asked: Asked) -> Summary:
    """Stake, rewards and roles of a wallet in `run`; the outcome of its newest work. See `docs/operating.md`."""
    spec, record = await read_record(ledger, run)
    params = record.run.params
    summary = await _holdings(ledger, record, asked)
    folders = {who: _folder(ledger, run, asked, who) for who in (asked.provider, asked.node) if who}
    summary["sources"] = _sources(asked, [folder for folder in folders.values() if folder])
    domain = Domain(ledger.chain_id, ledger.coordinator)
    local = folders[asked.provider] if asked.provider in params.validators else None
    statements = Statements(record, spec, domain, local, asked.peers)
    if asked.node is not None:
        summary |= await _node(ledger, record, asked, asked.node)
        own = [s for s in record.submissions.values() if s.made.node == asked.node]
        summary["submissions"] = await _outcomes(record, statements, own, asked)
        summary["uncommitted"] = await uncommitted(ledger, record, asked.node, folders[asked.node], asked.home)
    if not summary["roles"]:
        summary["note"] = NO_ROLE
    summary["weights"] = [await _weights(record, who, folder) for who, folder in folders.items() if folder]
    summary["sharing"] = [row for who, folder in folders.items() if folder for row in _sharing(who, folder, summary)]
    summary["peers"] = [row for who, folder in folders.items() if folder for row in _peers(who, folder)]
    summary["pending"] = [row for who in folders for row in await pending(ledger, who, asked.home)]
    if asked.provider in params.validators:
        summary["attested"] = await _attested(record, statements, asked)
    if asked.provider == params.trainer:
        summary["used"] = await _used(record, spec, statements, folders[asked.provider], asked)
    return summary


async def _holdings(ledger: Ledger, record: Record, asked: Asked) -> Summary:
    params, who = record.run.params, asked.provider
    roles = {
        "worker": asked.node is not None and asked.node in record.allocated,
        "validator": who in params.validators,
        "trainer": who == params.trainer,
        "relay": who in record.relays,
    }
    return {
        "provider": who,
        "node": asked.node,
        "roles": [name for name, has in roles.items() if has],
        "block": record.head.number,
        "time": record.head.time,
        "endpoint": record.endpoints.get(asked.node or who) or record.endpoints.get(who),
        "latest_version": record.latest,
        "ended": record.ended is not None,
        "tokens": str(await ledger.token_balance(who)),
        "free_stake": str(await ledger.free_stake(who)),
        "rewards": str(await ledger.rewards(who)),
        "gas_wei": str(await ledger.native_balance(who)),
    }


async def _node(ledger: Ledger, record: Record, asked: Asked, node: Address) -> Summary:
    allocation = await ledger.allocation(record.run.id, node)
    return {
        "authorised": await ledger.provider_of(node) == asked.provider,
        "allocated": str(allocation.amount),
        "locked": str(allocation.locked),
        "node_gas_wei": str(await ledger.native_balance(node)),
    }


def _folder(ledger: Ledger, run: int, asked: Asked, who: Address) -> StateFolder | None:
    if asked.home is None:
        return None
    state = asked.home.state(ledger.chain_id, ledger.coordinator, run, who)
    return state if state.folder.is_dir() else None


async def _weights(record: Record, who: Address, folder: StateFolder) -> Summary:
    """The versions that lie whole on this disk, and what all of them take there."""
    store = folder.checkpoints
    try:
        whole = await asyncio.to_thread(lambda: {path.name for path in (store / CHECKPOINTS).glob("*")})
        taken = await asyncio.to_thread(taken_bytes, store)
    except OSError as error:
        raise disk_refused(store, error) from error
    held = [each.version for each in record.checkpoints if each.manifest_root.hex() in whole]
    return {"account": who, "versions": held, "bytes": taken}


def _sharing(who: Address, folder: StateFolder, summary: Summary) -> list[Summary]:
    """What the role of `who`, if it runs, gives of line and disk, beside its limits."""
    found = read_lending(folder.sharing, time.time())
    taken = next(row["bytes"] for row in summary["weights"] if row["account"] == who)
    return [] if found is None else [{"account": who, **found.model_dump(), "taken_bytes": taken}]


def _peers(who: Address, folder: StateFolder) -> list[Summary]:
    """How the role of `who` stands among its peers by libp2p, by its own last word."""
    standing = read_standing(folder.peers)
    return [] if standing is None else [{"account": who, **standing}]


def _sources(asked: Asked, folders: Sequence[StateFolder]) -> list[str]:
    local = [str(state.folder) for state in folders]
    missing = "no files of these keys in this run on this machine: what is not on chain is left out"
    return ["chain", *(local or [missing]), *(["validators"] if asked.peers is not None else [])]


def _newest(submissions: Sequence[Submission], asked: Asked) -> list[Submission]:
    """In the order in which they were made."""
    return list(submissions)[-asked.newest :]


async def _outcomes(
    record: Record, statements: Statements, submissions: Sequence[Submission], asked: Asked
) -> list[Summary]:
    shown = _newest(submissions, asked)
    known = await statements.known(shown)
    return [outcome(record, s, known[s.made.commitment], asked.when) for s in shown]


# --- What validators and trainer did


async def _attested(record: Record, statements: Statements, asked: Asked) -> list[Summary]:
    """The submissions that this validator said something about, on chain or in its own files."""
    me = asked.provider
    shown: list[tuple[Submission, Case]] = []
    for submission in reversed(record.submissions.values()):
        case = await statements.case(submission.made.commitment)
        reported = any(report.validator == me for report in submission.reports)
        if reported or me in case.haves or me in case.no_faults or case.found(me):
            shown.insert(0, (submission, case))
        if len(shown) == asked.newest:
            break
    known = await statements.known([submission for submission, _ in shown])
    return [
        _attestation(record, submission, case, known[submission.made.commitment], asked) for submission, case in shown
    ]


def _attestation(record: Record, submission: Submission, case: Case, known: Known, asked: Asked) -> Summary:
    me = asked.provider
    found = {(fault.leaf, fault.check, fault.evidence) for fault in case.found(me)}
    found |= {(r.leaf, r.check, r.evidence) for r in submission.reports if r.validator == me}
    return {
        **outcome(record, submission, known, asked.when),
        "held_at": said_have(case, me),
        "clean_leaves": len(case.clean(me)) if me in case.no_faults else None,
        "faults": [
            {"check": check_name(check), "leaf": leaf, "evidence": "0x" + digest.hex()}
            for leaf, check, digest in sorted(found)
        ],
        "reported": any(report.validator == me for report in submission.reports),
    }


async def _used(
    record: Record, spec: RunSpec, statements: Statements, folder: StateFolder | None, asked: Asked
) -> list[Summary]:
    """The newest submissions, each with how many of its groups were trained on: None where no state is here."""
    facts = None if folder is None else await asyncio.to_thread(latest_facts, folder.training / "states")
    counts: dict[str, int] = {}
    for consumed in facts.consumed if facts else ():
        counts[consumed.commitment] = counts.get(consumed.commitment, 0) + 1
    rows = await _outcomes(record, statements, tuple(record.submissions.values()), asked)
    for row in rows:
        used = None if facts is None else counts.get(row["commitment"].removeprefix("0x"), 0)
        row |= {"groups": spec.slot.groups, "used_groups": used, "step": None if facts is None else facts.version}
    return rows
