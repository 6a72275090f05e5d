"""Opening a run, holding a key, putting a role together, and taking it down again."""

import asyncio
import hashlib
import os
import shutil
import signal
from dataclasses import replace
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount

from ledger.base import Digest, Ledger, Run, RunParams, Version, Windows
from ledger.errors import Unreachable
from node.config import Home, Settings
from node.engines.choice import EngineChoice
from node.errors import ConfigError, EngineError, Malformed, SpecMismatch
from node.log import LOGGER
from node.membership import connected, first_weights, member_of, membership, open_run, served
from node.runspec import RunSpec
from node.runtime import (
    Training,
    contained,
    require_base,
    rule_of,
    run_trainer,
    run_until_stopped,
    run_validator,
    run_worker,
)
from node.terms import params_of, require_same_terms
from node.training.hyper import Hyper
from tests.roles.network import TRAINER, Build, Network
from tests.roles.stage import Watched, key

ABOUT = Digest(b"\x01" * 32)


class Altered:
    """A ledger whose contract holds the run with something changed."""

    def __init__(self, inner: Ledger, **changes: Any) -> None:
        self._inner, self._changes = inner, changes

    async def run(self, number: int) -> Run:
        return replace(await self._inner.run(number), **self._changes)  # type: ignore[arg-type]


def settings_of(network: Network, **changes: Any) -> Settings:
    return Settings(Home(network.folder / "home"), network.run, host="127.0.0.1", allow_private=True, **changes)


async def test_a_run_is_opened_when_spec_digest_and_terms_agree(build: Build) -> None:
    network = await build(validators=2)
    run, spec = await open_run(network.connect(key(9)), network.run)

    assert (run.id, spec) == (network.run, network.spec)


async def test_a_run_that_does_not_exist_is_named_with_how_many_there_are(build: Build) -> None:
    network = await build(validators=1)
    with pytest.raises(ConfigError, match=r"no run 7 on this chain: it has 1, numbered from 1"):
        await open_run(network.connect(key(9)), 7)


async def test_a_run_is_refused_when_its_spec_has_another_digest(build: Build) -> None:
    network = await build(validators=1)
    with pytest.raises(SpecMismatch, match="does not have the digest"):
        await open_run(Altered(network.connect(key(9)), spec_digest=Digest(bytes(32))), network.run)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [b"{}", b"not json", b'{"protocol":2}'])
async def test_a_run_is_refused_when_its_spec_is_none(build: Build, text: bytes) -> None:
    network = await build(validators=1)
    digest = Digest(hashlib.sha256(text).digest())
    with pytest.raises(Malformed, match="run spec"):
        await open_run(Altered(network.connect(key(9)), spec=text, spec_digest=digest), network.run)  # type: ignore[arg-type]


TERMS = [
    "price_per_unit", "submission_bond", "fault_bond", "penalty", "max_open", "checkpoint_interval", "trainer_delay",
    "max_units", "async_level",
]  # fmt: skip


def params(spec: RunSpec) -> RunParams:
    return params_of(spec, key(1).address, [key(3).address, key(2).address], 2)


@pytest.mark.parametrize("term", TERMS)
def test_a_run_is_refused_when_the_contract_enforces_another_term_than_the_spec_says(spec: RunSpec, term: str) -> None:
    whole = params(spec)
    require_same_terms(spec, whole)
    other = replace(whole, **{term: getattr(whole, term) + 1})

    with pytest.raises(SpecMismatch, match=f"^{term} is .* do not join this run$"):
        require_same_terms(spec, other)


def test_a_run_is_refused_when_a_window_differs_by_a_second(spec: RunSpec) -> None:
    whole = params(spec)
    assert whole.windows == Windows(6, 6, 120, 20, 8, 0, 30)
    with pytest.raises(SpecMismatch, match=r"^windows is"):
        require_same_terms(spec, replace(whole, windows=replace(whole.windows, contest=7)))


def test_validators_are_given_to_the_contract_in_ascending_order(spec: RunSpec) -> None:
    addresses = [int(who, 16) for who in params(spec).validators]
    assert addresses == sorted(addresses)


async def test_a_key_is_held_once_and_given_back_when_its_role_ends(build: Build) -> None:
    network = await build(validators=1)

    async def connect(account: LocalAccount) -> Ledger:
        return network.connect(account)

    async with membership(connect, key(9), settings_of(network)) as member:
        with pytest.raises(ConfigError, match="already runs this key in this run"):
            async with membership(connect, key(9), settings_of(network)):
                pass
        async with membership(connect, key(8), settings_of(network)) as other:
            assert other.state.folder != member.state.folder
    async with membership(connect, key(9), settings_of(network)):
        pass


@pytest.mark.parametrize("inbound", [True, False])
async def test_where_a_node_serves_is_a_url_or_said_to_be_nowhere(
    build: Build, caplog: pytest.LogCaptureFixture, inbound: bool
) -> None:
    network = await build(validators=1)
    ledger, settings = network.connect(key(9)), settings_of(network, inbound=inbound)
    caplog.set_level("INFO", LOGGER.name)
    async with member_of(ledger, settings) as member, served(member, None):
        pass

    what = "serving" if inbound else "nobody can connect to this node"
    (line,) = [each for each in caplog.records if each.getMessage().startswith(what)]
    (url,) = [value for key, value in vars(line)["fields"].items() if key == "url"]
    assert url.startswith("http://127.0.0.1:") if inbound else url is None


async def test_a_ledger_is_closed_however_its_use_ends(build: Build) -> None:
    network, closed = await build(validators=1), list[str]()

    async def connect(account: LocalAccount) -> Ledger:
        return Watched(network.connect(account), before=lambda name, _: closed.append(name))  # type: ignore[arg-type,return-value]

    with pytest.raises(EngineError):
        async with connected(connect, key(9)):
            raise EngineError("no model")
    assert closed == ["close"]


async def test_roles_are_refused_to_keys_that_the_run_does_not_name(build: Build) -> None:
    network = await build(validators=1)

    async def connect(account: LocalAccount) -> Ledger:
        return network.connect(account)

    stranger, settings = key(9), settings_of(network)
    with pytest.raises(ConfigError, match=f"{stranger.address} is no validator.*{network.validators[0].address}"):
        await run_validator(settings, connect, stranger, EngineChoice("scripted"))
    training = Training(network.base, 4, Hyper(learning_rate=1e-3))
    with pytest.raises(ConfigError, match=f"{stranger.address} is not the trainer.*{TRAINER.address} is"):
        await run_trainer(settings, connect, stranger, training)


async def test_a_trainer_is_refused_when_its_model_is_not_the_runs(build: Build, tmp_path: Any) -> None:
    network = await build(validators=1)
    trainer = await network.trainer()
    require_base(trainer.member, network.base)
    other = tmp_path / "other"
    other.mkdir()
    for path in network.base.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    (other / "generation_config.json").write_text("{}")

    with pytest.raises(SpecMismatch, match="give the model that the run was created with"):
        require_base(trainer.member, other)


def test_a_batch_follows_the_specs_terms(spec: RunSpec) -> None:
    rule = rule_of(spec, Training(__file__, 8, Hyper(learning_rate=1e-3)))  # type: ignore[arg-type]
    assert (rule.rollouts, rule.group_size, rule.async_level, rule.max_provider_share) == (8, 2, 2, 1.0)


async def test_a_start_does_not_wait_for_the_newest_version_when_an_older_one_is_here(build: Build) -> None:
    network = await build(validators=1)
    validator = await network.validator()
    await network.connect(TRAINER).publish_checkpoint(network.run, Version(1), ABOUT)  # which nobody has

    folder = await first_weights(validator.member)

    assert folder == validator.member.versions.held(Version(0))
    assert validator.member.record.latest == 1


async def test_a_start_that_waits_for_weights_ends_with_the_run(build: Build) -> None:
    network = await build(validators=1)
    validator = await network.validator(weights=False)
    await network.connect(TRAINER).end_run(network.run)
    network.chain.mine(network.spec.windows.grace + 1)

    assert await first_weights(validator.member) is None


async def test_a_worker_that_comes_back_hands_out_its_file_before_it_has_any_weights(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    (data,) = [worker.role.maker.intake.store.get(commitment)]
    settings = worker.member.settings
    await worker.stop()
    shutil.rmtree(worker.member.state.checkpoints)

    async def connect(account: LocalAccount) -> Ledger:
        return network.connect(account)

    choice = EngineChoice("scripted")
    task = asyncio.create_task(run_worker(settings, connect, key(100), worker.account, choice))
    asking = await network.validator(weights=False)

    async def got() -> bool:
        await asking.member.sync()
        return await asking.role.intake.fetch(commitment)

    while not await got():
        assert not task.done()
    assert asking.role.intake.store.get(commitment) == data
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_one_submission_provokes_is_contained(caplog: pytest.LogCaptureFixture) -> None:
    async def ends(with_: object) -> bool:
        if isinstance(with_, BaseException):
            raise with_
        return bool(with_)

    assert await contained("auditing", ABOUT, ends(True)) is True
    assert await contained("auditing", ABOUT, ends(False)) is False
    for known in (EngineError("memory"), Unreachable("chain")):
        assert await contained("auditing", ABOUT, ends(known)) is None
    assert not [record for record in caplog.records if record.exc_info]
    assert await contained("auditing", ABOUT, ends(ZeroDivisionError("hostile"))) is None
    (bug,) = [record for record in caplog.records if record.exc_info]
    assert "this is a bug" in bug.getMessage() and ABOUT.hex() in bug.getMessage()
    with pytest.raises(asyncio.CancelledError):
        await contained("auditing", ABOUT, ends(asyncio.CancelledError()))


def test_a_role_that_is_told_to_stop_ends_in_order() -> None:
    cleaned = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    async def ends() -> None:
        return

    assert run_until_stopped(work()) is False
    assert cleaned == [True]
    assert run_until_stopped(ends()) is True
