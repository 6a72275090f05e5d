"""Launching a run: a preset and a base model become a RunSpec, and the RunSpec a run on chain."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ledger.base import Address, Ledger, RunId, RunParams
from ledger.parsing import first_problem
from node.errors import ConfigError
from node.log import event
from node.roles.base_model import model_spec
from node.runspec import (
    AuditSpec,
    EconomicsSpec,
    ProofSpec,
    RunSpec,
    SamplingSpec,
    SamplingTestSpec,
    SlotSpec,
    TaskSpec,
    UnitsSpec,
    WindowsSpec,
    worst_case_units,
)
from node.runtime import Training
from node.shards.manifest import build
from node.tasks.environment import Setting
from node.tasks.taskset import describe
from node.tasks.tokenizer import load_tokenizer
from node.terms import params_of
from node.training import hyper
from node.training.hyper import Hyper

PRICE_PER_UNIT = 10**12  # base units of an 18-decimal token: a full demo submission earns a few tokens
BONDS_PER_PAY = 10  # the submission bond is a tenth of what a submission can earn; docs/protocol.md, "Penalty"
SAFETY = 10  # times the penalty from which fraud loses on average; docs/protocol.md, "Penalty"
LEAST_PAYS = 5  # the penalty is never under this many full pays, whatever is audited; docs/protocol.md, "Penalty"
DETECTION_POWER = 0.99  # of one audited leaf against a gross fraud; docs/protocol.md, "Penalty"
MAX_SHOWN = 60  # characters of a value that is refused

WINDOWS: Mapping[str, WindowsSpec] = {
    "local": WindowsSpec(available=6, audit=6, settle_by=120, confirm=20, contest=8, panel=0, grace=15),
    "testnet": WindowsSpec(
        available=300, audit=900, settle_by=14_400, confirm=3_600, contest=86_400, panel=86_400, grace=3_600
    ),
}

MAX_OPEN = {"local": 1, "testnet": 8}  # one machine need not make what nobody trains on; real windows take hours


@dataclass(frozen=True, slots=True)
class Preset:
    """What fits one built-in model: its task, sizes, and what one step of training takes."""

    task: str
    config: Mapping[str, Setting]
    max_prompt_tokens: int
    max_output_tokens: int
    groups: int
    group_size: int
    batch_rollouts: int
    hyper: Hyper


PRESETS: Mapping[str, Preset] = {
    "smollm2": Preset(
        task="arithmetic", config={"terms": 2, "digits": 1}, max_prompt_tokens=64, max_output_tokens=40,
        groups=2, group_size=8, batch_rollouts=32, hyper=hyper.SMOLLM2,
    ),
    "tiny": Preset(
        task="residues", config={}, max_prompt_tokens=8, max_output_tokens=40,
        groups=2, group_size=16, batch_rollouts=64, hyper=hyper.TINY,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What the owner of a run chooses beside the preset."""

    name: str
    pace: str = "local"
    max_steps: int = 10
    audit_leaves: int | None = None  # None: every leaf
    max_open: int | None = None  # None: what fits the pace
    async_level: int = 2
    max_provider_share: float = 1.0
    checkpoint_interval: int = 0
    task: str | None = None  # None: the preset's
    settings: Mapping[str, Setting] = field(default_factory=dict)  # of the task, beside the preset's or its defaults


def preset(name: str) -> Preset:
    """Raises: ConfigError."""
    if name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


def training(model: str, base: Path, batch: int | None, learning_rate: float | None) -> Training:
    """What the trainer of a run on `model` uses: its preset's settings, or smollm2's, where nothing else is said."""
    chosen = PRESETS.get(model, PRESETS["smollm2"])
    rate = chosen.hyper.learning_rate if learning_rate is None else learning_rate
    return Training(base, batch or chosen.batch_rollouts, replace(chosen.hyper, learning_rate=rate))


@cache
def measured(name: str) -> dict[str, Any]:
    """The thresholds and the tail table that were measured for a preset's model."""
    loaded: dict[str, Any] = json.loads((files("node") / "presets" / f"{name}.json").read_text())
    return loaded


def build_spec(name: str, base: Path, plan: Plan) -> RunSpec:
    """The spec of a run of preset `name` from the model in `base`.

    Raises:
        ConfigError: a choice of the plan's cannot be; the message names it.
        EngineError: the folder is not a usable model.
    """
    try:
        return _spec(preset(name), measured(name), base, plan, _windows(plan.pace))
    except ValidationError as error:
        given = str(error.errors()[0]["input"])[:MAX_SHOWN]
        raise ConfigError(f"the run cannot have {given!r} as its {first_problem(error, 'specification')}") from error


def _spec(chosen: Preset, figures: dict[str, Any], base: Path, plan: Plan, windows: WindowsSpec) -> RunSpec:
    task = _task(chosen, plan, base)
    slot = SlotSpec(groups=chosen.groups, group_size=chosen.group_size)
    sampling = SamplingSpec(
        temperature=1.0, max_prompt_tokens=chosen.max_prompt_tokens, max_output_tokens=chosen.max_output_tokens
    )
    units = _units(slot, sampling)
    return RunSpec(
        protocol=1, name=plan.name, model=model_spec(base, build(base).root), sampling=sampling, tasks=[task],
        slot=slot, proof=ProofSpec(**figures["proof"]), sampling_test=_sampling_test(figures["sampling_test"]),
        audit=AuditSpec(leaves=plan.audit_leaves or slot.rows), units=units, async_level=plan.async_level,
        max_provider_share=plan.max_provider_share, max_steps=plan.max_steps,
        economics=_economics(plan, slot, units), windows=windows,
    )  # fmt: skip


def _task(chosen: Preset, plan: Plan, base: Path) -> TaskSpec:
    name = plan.task or chosen.task
    config = {**(chosen.config if name == chosen.task else {}), **plan.settings}
    return describe(name, config, load_tokenizer(base), chosen.max_prompt_tokens)


def _sampling_test(figures: dict[str, Any]) -> SamplingTestSpec:
    tail = [(float(x), float(p)) for x, p in figures["tail"]]
    return SamplingTestSpec(tail=tail, suspect=figures["suspect"], alarm=figures["alarm"])


def _windows(pace: str) -> WindowsSpec:
    if pace not in WINDOWS:
        raise ConfigError(f"there is no pace {pace!r}: choose one of {', '.join(WINDOWS)}")
    return WINDOWS[pace]


def _units(slot: SlotSpec, sampling: SamplingSpec) -> UnitsSpec:
    """Weights in the ratio of what prefill, decoding and attention cost a small model."""
    least = UnitsSpec(w_prompt=1_000, w_output=4_000, w_attention=1, max_units=2**40 - 1)
    return least.model_copy(update={"max_units": worst_case_units(slot, sampling, least)})


def _economics(plan: Plan, slot: SlotSpec, units: UnitsSpec) -> EconomicsSpec:
    most = units.max_units * PRICE_PER_UNIT
    return EconomicsSpec(
        price_per_unit=str(PRICE_PER_UNIT),
        submission_bond=str(most // BONDS_PER_PAY),
        fault_bond="0",
        penalty=str(penalty(most, min(plan.audit_leaves or slot.rows, slot.rows))),
        max_open=plan.max_open or MAX_OPEN[plan.pace],
        checkpoint_interval=plan.checkpoint_interval,
        trainer_delay=0 if plan.pace == "local" else 86_400,
    )


def penalty(most_pay: int, audited: int, collusion: float = 1.0) -> int:
    """What a convicted submission costs: 10 R / (A p eta), and never under 5 R.

    Args:
        most_pay: R, base units that one submission can earn at most.
        audited: A, expected audited leaves.
        collusion: eta, the share of leaves that colluding validators cannot hide between them.

    Source: docs/protocol.md, "Penalty": fraud of any share then loses on average.
    """
    return max(math.ceil(SAFETY * most_pay / (audited * DETECTION_POWER * collusion)), LEAST_PAYS * most_pay)


def default_pot(spec: RunSpec, submissions_per_step: int = 8) -> int:
    """Base units that pay `submissions_per_step` full submissions for every step."""
    most = spec.units.max_units * int(spec.economics.price_per_unit)
    return most * submissions_per_step * (spec.max_steps + 1)


async def create_run(
    owner: Ledger,
    spec: RunSpec,
    trainer: Address,
    validators: Sequence[Address],
    quorum: int | None,
    relays: Sequence[Address],
    pot: int,
) -> RunId:
    """Creates and funds a run on chain; the pot comes from the owner's tokens, else from a faucet.

    The same run of the owner's that was cut short before it was funded is gone on with instead.

    Raises: ConfigError, Reverted.
    """
    wanted = len(validators) * 2 // 3 + 1 if quorum is None else quorum
    params = params_of(spec, trainer, list(validators), wanted)
    await owner.finish_earlier()  # what a killed process sent counts from here on
    event("creating the run; if this is cut short, `intellect-node run list` says whether it is there")
    missing = pot - await owner.token_balance(owner.account)
    if missing > 0:
        await owner.faucet(missing)  # first, because a run that cannot be paid for is of no use
    run = await _cut_short(owner, params, spec) if pot else None
    if run is None:
        run = await owner.create_run(params, spec.encode())
        event("run created", run=run, spec=spec.digest, validators=len(validators), quorum=wanted)
    else:
        event("going on with a run that was created and not funded", run=run, spec=spec.digest)
    for relay in relays:
        await owner.set_relay(run, relay, True)
    await owner.fund_run(run, pot)  # last: it is what says that the run is whole
    return run


async def _cut_short(owner: Ledger, params: RunParams, spec: RunSpec) -> RunId | None:
    """The owner's newest run with these very terms that never had a pot nor a version."""
    for number in range(await owner.run_count(), 0, -1):
        state = await owner.run_state(RunId(number))
        if state.pot or state.reserved or state.checkpoints or state.ended_at:
            continue
        run = await owner.run(RunId(number))
        if (run.owner, run.params, run.spec_digest) == (owner.account, params, spec.digest):
            return run.id
    return None
