"""Replaying a validator's evidence: anyone, with a chain endpoint and the weights, sees whether the fault is there."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger.base import Ledger
from ledger.disk import refusal
from node.checks.base import deep_leaves
from node.checks.evidence import MAX_EVIDENCE_BYTES, Evidence
from node.checks.reopening import Reopened, reopen, shown
from node.clock import SystemClock
from node.config import Home
from node.engines.base import Engine
from node.engines.choice import EngineChoice, make_engine
from node.errors import ConfigError, Malformed
from node.exports import fetch_checkpoint
from node.membership import policy_of, tasks_of
from node.progress import Progress
from node.queries import read_record
from node.record import Record
from node.runspec import RunSpec
from node.verdicts import Check, Rejected, Undecided, Verdict

Say = Callable[[str], None]


async def verify_evidence(
    ledger: Ledger,
    path: Path,
    home: Home,
    allow_private: bool,
    engine: EngineChoice,
    say: Say,
) -> dict[str, Any]:
    """Looks at the case in an evidence file again: what it claims, what is found here, whether that confirms it.

    Raises:
        ConfigError: the file cannot be read, or is about another chain or contract.
        Malformed: it is no evidence, or not about what is on chain.
        NotFound: the weights are on no peer now.
    """
    evidence = _read(path)
    claim = evidence.claim
    if (claim.chain_id, claim.contract) != (ledger.chain_id, ledger.coordinator):
        raise ConfigError(f"{path} is about contract {claim.contract} on chain {claim.chain_id}: name that deployment")
    spec, record = await read_record(ledger, claim.run)
    found = await _without_weights(ledger, spec, record, evidence)
    if found is None:
        folder = await fetch_checkpoint(ledger, claim.run, claim.version, home, allow_private, say)
        found = await _with_weights(spec, evidence, folder, engine, home)
    return _result(evidence, found)


def _read(path: Path) -> Evidence:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_EVIDENCE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {refusal(error)}") from error
    try:
        return Evidence.parse(data)
    except Malformed as error:
        raise ConfigError(f"{path} is no evidence file: {error}") from error


async def _without_weights(ledger: Ledger, spec: RunSpec, record: Record, evidence: Evidence) -> Verdict | None:
    """What chain and hashes say already; None where the model's folder is needed, which may be hundreds of MB."""
    claim = evidence.claim
    if claim.commitment not in record.submissions:
        raise Malformed("evidence is about a commitment that is not on this chain")
    if record.root(claim.version) != claim.manifest_root:
        raise Malformed(f"evidence names other weights than version {claim.version} has on chain")
    block = record.beacon_block(claim.version, claim.node, claim.slot)
    beacon = None if block is None else await ledger.beacon(block)
    if beacon is not None and beacon != claim.beacon:
        return Rejected(Check.WITHHELD, evidence.rejected.leaf, claim.beacon.hex(), beacon.hex(), "not the chain's")
    rollouts = await asyncio.to_thread(shown, evidence, claim.commitment, spec)
    if isinstance(rollouts, Rejected):
        return rollouts
    return None if rollouts else Undecided("the evidence shows no rollout: this check needs the chain")


async def _with_weights(spec: RunSpec, evidence: Evidence, folder: Path, choice: EngineChoice, home: Home) -> Verdict:
    tasks = await asyncio.to_thread(tasks_of, spec, folder)
    case = await asyncio.to_thread(reopen, evidence, evidence.claim.commitment, spec, tasks)
    if not isinstance(case.verdict, Undecided) or not case.rollouts:
        return case.verdict
    engine = make_engine(choice, policy_of(spec), home.engine_log, generates=False)
    return await asyncio.to_thread(_replayed, spec, case, folder, engine)


def _replayed(spec: RunSpec, case: Reopened, folder: Path, engine: Engine) -> Verdict:
    """The model's say on the exhibited leaves."""
    leaves = sorted(case.rollouts)
    try:
        with Progress("replaying", "rollouts", SystemClock()) as progress:
            engine.load(folder)
            replays = engine.replay(case.subject.seed, [case.rollouts[leaf] for leaf in leaves], progress)
    finally:
        engine.close()
    return deep_leaves(spec, case.rollouts, dict(zip(leaves, replays, strict=True)))


def _result(evidence: Evidence, found: Verdict) -> dict[str, Any]:
    claimed = evidence.rejected
    result: dict[str, Any] = {
        "commitment": "0x" + evidence.claim.commitment.hex(),
        "node": evidence.claim.node,
        "claimed": {"check": claimed.check.name, "leaf": claimed.leaf, "measured": claimed.measured},
        "threshold": claimed.threshold,
        "confirmed": isinstance(found, Rejected) and found.check == claimed.check,
    }
    match found:
        case Rejected():
            result["found"] = {"check": found.check.name, "leaf": found.leaf, "measured": found.measured}
        case Undecided(reason):
            result["found"] = {"undecided": reason}
        case _:
            result["found"] = {"accepted": dict(found.measured)}
    return result
