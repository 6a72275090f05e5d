"""From a preset and a model to a run on chain."""

from pathlib import Path

import pytest

from ledger.base import Address, RunId
from ledger.memory import MemoryChain, MemoryLedger
from node.errors import ConfigError
from node.launch import PRESETS, WINDOWS, Plan, build_spec, create_run, default_pot, penalty, preset
from node.runspec import RunSpec
from tests.roles.stage import key


def test_the_penalty_makes_fraud_of_any_share_lose() -> None:
    # 10 R / (A p eta) with p = 0.99, and never under 5 R.
    assert penalty(most_pay=99, audited=1) == 1000
    assert penalty(most_pay=99, audited=2) == 500
    assert penalty(most_pay=99, audited=1, collusion=0.5) == 2000
    assert penalty(most_pay=100, audited=64) == 500
    assert penalty(most_pay=100, audited=2) == 506  # 505.05 rounded up


def test_the_tiny_preset_gives_a_spec_that_reads_back_and_whose_numbers_add_up(base: Path) -> None:
    spec = build_spec("tiny", base, Plan("a-run", audit_leaves=4, max_open=3, max_steps=5))

    assert RunSpec.parse(spec.encode()) == spec
    assert (spec.slot.rows, spec.audit.leaves, spec.max_steps) == (32, 4, 5)
    # 32 rows of 40 tokens after 8: 4000 each, attention 40 * 8 + 40 * 39 / 2 = 1100; 2 prompts of 8 at 1000.
    assert spec.units.max_units == 32 * (40 * 4000 + 1100) + 2 * 8 * 1000
    most = spec.units.max_units * 10**12
    assert int(spec.economics.submission_bond) == most // 10
    assert int(spec.economics.penalty) == 5 * most  # 10 R / (4 * 0.99) would be less
    assert default_pot(spec) == most * 8 * 6
    assert spec.economics.trainer_delay == 0


def test_settings_of_a_plan_go_on_top_of_the_presets_and_another_task_starts_from_its_defaults(base: Path) -> None:
    varied = build_spec("tiny", base, Plan("a-run", settings={"seed": 5, "train": 12}))
    other = build_spec("tiny", base, Plan("a-run", task="residues", settings={"vocabulary": 128}))

    assert varied.tasks[0].config == {"classes": 4, "vocabulary": 256, "seed": 5, "train": 12, "held_out": 64}
    assert (varied.tasks[0].size, other.tasks[0].config["vocabulary"]) == (12, 128)
    with pytest.raises(ConfigError, match="task residues: config, chance: "):
        build_spec("tiny", base, Plan("a-run", settings={"chance": 0.5}))
    with pytest.raises(ConfigError, match="task chess: name: this node knows"):
        build_spec("tiny", base, Plan("a-run", task="chess"))


def test_every_pace_has_windows_that_the_contract_takes() -> None:
    for windows in WINDOWS.values():
        assert windows.settle_by > windows.available + windows.audit + windows.confirm
    assert WINDOWS["testnet"].contest >= 24 * 3600


def test_names_that_do_not_exist_are_answered_with_those_that_do(base: Path) -> None:
    with pytest.raises(ConfigError, match=f"choose one of {', '.join(PRESETS)}"):
        preset("huge")
    with pytest.raises(ConfigError, match="choose one of local, testnet"):
        build_spec("tiny", base, Plan("a-run", pace="warp"))
    with pytest.raises(ConfigError, match="the run cannot have 'a run' as its name: "):
        build_spec("tiny", base, Plan("a run"))
    with pytest.raises(ConfigError, match="the run cannot have '0' as its max_steps: "):
        build_spec("tiny", base, Plan("a-run", max_steps=0))


async def test_a_run_is_created_funded_and_its_relays_approved(spec: RunSpec) -> None:
    chain = MemoryChain()
    owner = MemoryLedger(chain, key(1))
    await owner.faucet(30)
    validators = [Address(key(n).address) for n in (5, 4, 6, 7)]
    relay = Address(key(8).address)
    run = await create_run(owner, spec, Address(key(2).address), validators, None, [relay], pot=100)

    held = await owner.run(run)
    assert (run, held.params.quorum, held.spec_digest) == (RunId(1), 3, spec.digest)  # floor(2 * 4 / 3) + 1
    assert (await owner.run_state(run)).pot == 100
    assert await owner.token_balance(owner.account) == 0
    assert relay in [event.relay for event in await owner.events(run, 0, 100) if hasattr(event, "relay")]
