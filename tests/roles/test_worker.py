"""A worker from its assignment to its pay, whatever the chain, its engine and its stake do meanwhile."""

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from ledger.base import Address, Digest, State
from ledger.errors import NothingToClaim, TooManyOpen, Unconfirmed, Unreachable, reverted
from ledger.journal import SlotTaken
from node.engines.base import Policy
from node.errors import ConfigError, EngineError
from node.membership import policy_of
from node.progress import OnProgress
from node.roles.claiming import claim_rewards
from node.roles.making import SPARE_FILES
from node.roles.worker import OutOfStake
from node.rollouts.rollout import Sample
from node.runspec import RunSpec
from tests.roles.network import Build, Network, breaking, files
from tests.roles.stage import Engineered, FastClock, Watched, key, until


async def last_life(network: Network) -> Digest:
    """The first submission up to its settlement, the run's end right behind it."""
    (submission,) = await network.committed()
    await network.end_run()
    assert await network.live(submission.made.commitment) == State.SETTLED
    return submission.made.commitment


async def test_honest_work_is_handed_to_every_validator_settled_and_claimed_when_the_run_ends(build: Build) -> None:
    network = await build(validators=2)
    validators = await network.all_validators()
    worker = (await network.worker()).go()
    wallet = Address(key(100).address)

    commitment = await last_life(network)
    assert all(part.role.intake.holds(commitment) for part in validators)
    await until(lambda: worker.finished)

    units = worker.member.record.submissions[commitment].made.units
    price = int(network.spec.economics.price_per_unit)
    assert network.chain.token.balances[wallet] >= units * price
    assert await worker.role.provider.rewards(wallet) == 0
    assert worker.task is not None and worker.task.exception() is None


class Endless(Engineered):
    """Makes a first token for ever."""

    def generate(self, seed: bytes, prompts: Sequence[tuple[int, ...]], progress: OnProgress) -> list[Sample]:
        self.generated += 1
        while True:
            progress(1, 1000)
            time.sleep(0.001)


async def test_what_is_made_is_given_up_when_the_run_takes_it_no_more(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1)
    caplog.set_level("INFO", logger="intellect-node")
    engine = Endless(policy_of(network.spec))
    worker = (await network.worker(engine=engine)).go()
    await until(lambda: engine.generated == 1)

    await network.end_run()
    await network.pass_time(network.spec.windows.grace - 1)
    await asyncio.sleep(0.1)
    assert not worker.finished  # late work is taken until then
    network.chain.mine(2)
    await until(lambda: worker.finished)

    assert files(worker) == () and worker.member.record.submissions == {}
    assert worker.task is not None and worker.task.exception() is None
    (given_up,) = [line for line in caplog.records if line.getMessage() == "slot given up"]
    assert given_up.fields == {"version": 0, "slot": 0, "reason": "the run has ended"}  # type: ignore[attr-defined]


async def test_another_process_with_the_same_key_is_named_when_the_chain_has_its_file(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1)
    breaking(network, "before", reverted("AlreadySubmitted", {"commitment": b"\xab" * 32}))
    (await network.worker()).go()

    await network.committed()

    (line,) = [line for line in caplog.records if "another process uses this node key" in line.getMessage()]
    assert line.fields["reason"] == f"AlreadySubmitted(commitment=0x{'ab' * 32})"  # type: ignore[attr-defined]


async def test_a_file_is_handed_over_when_the_chain_took_longer_than_the_ledger_waited(build: Build) -> None:
    network = await build(validators=1)
    breaking(network, "after", Unconfirmed("not final yet"))
    validator = await network.validator()
    (await network.worker()).go()

    (submission,) = await network.committed()

    await until(lambda: validator.role.intake.holds(submission.made.commitment))


async def test_a_worker_waits_while_as_many_submissions_are_open_as_the_run_permits(build: Build) -> None:
    network = await build(validators=1)
    await network.all_validators()
    (await network.worker()).go()
    (submission,) = await network.committed()
    commitment = submission.made.commitment
    await network.confirmed(commitment)
    await network.audited(commitment)
    assert len(network.parts[0].member.record.submissions) == 1

    assert await network.settled(commitment) == State.SETTLED
    await network.pass_time(3)

    second = (await network.committed(2))[1]
    assert (second.made.slot, second.made.version) == (1, 0)


@pytest.mark.parametrize(
    "error", [SlotTaken("another commitment was signed"), TooManyOpen("TooManyOpen"), Unreachable("no endpoint")]
)
async def test_a_worker_looks_again_with_the_same_file_when_the_chain_did_not_take_it(
    build: Build, error: Exception
) -> None:
    network = await build(validators=1)
    breaking(network, "before", error, times=2)
    engine = network.engine()
    worker = (await network.worker(engine=engine)).go()

    (submission,) = await network.committed()

    assert files(worker) == (submission.made.commitment,)
    assert engine.generated == 1


async def test_a_worker_tries_again_when_its_engine_failed_once(build: Build) -> None:
    network = await build(validators=1)
    (await network.worker(engine=network.engine(failures=1))).go()

    assert len(await network.committed()) == 1


async def test_a_worker_stops_and_says_what_to_do_when_its_engine_fails_again_and_again(build: Build) -> None:
    network = await build(validators=1)
    worker = (await network.worker(engine=network.engine(failures=9))).go()
    await until(lambda: worker.finished)

    with pytest.raises(EngineError, match=r"3 times in a row \(out of memory\).*fewer --threads"):
        await worker.task  # type: ignore[misc]
    assert network.parts[0].member.record.submissions == {}


class Overlapping(Engineered):
    """Makes two slots at a time: each of its first two calls waits for the other to begin."""

    slots_at_once = 2

    def __init__(self, policy: Policy, failures: int = 0) -> None:
        super().__init__(policy, failures)
        self.met = threading.Barrier(2, timeout=30)

    def generate(self, seed: bytes, prompts: Sequence[tuple[int, ...]], progress: OnProgress) -> list[Sample]:
        if self.met.n_waiting + self.generated < 2:
            self.met.wait()
        return super().generate(seed, prompts, progress)


async def two_open(build: Build, spec: RunSpec) -> Network:
    """A network whose nodes may have two submissions open; their first two beacons are there after three blocks."""
    economics = spec.economics.model_copy(update={"max_open": 2})
    return await build(validators=1, spec=spec.model_copy(update={"economics": economics}))


async def test_the_next_slot_is_begun_while_one_is_made_where_the_engine_takes_both(
    build: Build, spec: RunSpec
) -> None:
    network = await two_open(build, spec)
    engine = Overlapping(policy_of(network.spec))
    worker = await network.worker(engine=engine)
    network.chain.mine(3)
    worker.go()

    made = [submission.made for submission in await network.committed(2)]

    assert sorted(each.slot for each in made) == [0, 1]
    assert not engine.met.broken
    assert worker.task is not None and not worker.task.done()


async def test_a_failure_drops_what_was_begun_and_every_slot_is_committed_once(build: Build, spec: RunSpec) -> None:
    network = await two_open(build, spec)
    worker = await network.worker(engine=Overlapping(policy_of(network.spec), failures=1))
    network.chain.mine(3)
    worker.go()

    made = [submission.made for submission in await network.committed(2)]

    assert sorted(each.slot for each in made) == [0, 1]


async def test_a_worker_stops_and_says_why_when_nothing_backs_it_any_more(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    backing = await worker.role.provider.allocation(network.run, worker.member.account)
    await worker.role.provider.unstake(network.run, worker.member.account, backing.amount)
    worker.go()
    await until(lambda: worker.finished)

    with pytest.raises(OutOfStake, match="intellect-node status"):
        await worker.task  # type: ignore[misc]


async def test_a_worker_says_where_to_send_gas_when_its_key_has_none(build: Build) -> None:
    network = await build(validators=1)
    breaking(network, "before", reverted("InsufficientNativeBalance", {"balance": 0}))
    worker = (await network.worker()).go()
    await until(lambda: worker.finished)

    with pytest.raises(ConfigError, match=f"{worker.member.account} cannot pay gas"):
        await worker.task  # type: ignore[misc]


async def test_files_of_no_assignment_are_passed_over_and_only_the_latest_of_them_kept(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    store = worker.role.maker.intake.store
    for number in range(30):
        name = Digest(number.to_bytes(32))
        store.put(name, b"not a rollout file")
        os.utime(store.path(name), (number, number))  # number 29 is the latest
    worker.go()

    (submission,) = await network.committed()

    # Those that do not parse are deleted as they are met; the latest max_open + SPARE_FILES were met.
    assert SPARE_FILES == 16
    assert files(worker) == (submission.made.commitment,)


async def test_a_claim_that_another_node_of_the_wallet_was_faster_with_is_no_error(build: Build) -> None:
    network = await build(validators=1)

    class Stale:
        account = Address(key(100).address)

        async def finish_earlier(self) -> None:
            """Nothing was."""

        async def rewards(self, _: Address) -> int:
            return 5

        async def claim(self) -> None:
            raise NothingToClaim("NothingToClaim", {"provider": self.account})

    assert await claim_rewards(Stale()) == 0  # type: ignore[arg-type]
    assert await claim_rewards(network.connect(key(100))) == 0


async def test_the_claim_is_repeated_when_the_chain_does_not_answer_at_the_end(build: Build) -> None:
    network = await build(validators=2)
    await network.all_validators()
    plain, left = network.connect, [2]

    def fail(name: str, _: tuple[Any, ...]) -> None:
        if name == "claim" and left[0]:
            left[0] -= 1
            raise Unreachable("no endpoint")

    network.connect = lambda account: Watched(plain(account), before=fail)  # type: ignore[arg-type,assignment]
    worker = (await network.worker()).go()
    await last_life(network)
    await until(lambda: worker.finished)

    assert left == [0]
    assert network.chain.submissions.rewards[Address(key(100).address)] == 0


async def test_a_worker_fetches_the_weights_from_its_peers_when_it_has_none(build: Build) -> None:
    network = await build(validators=1)
    await network.validator()
    worker = (await network.worker(weights=False)).go()

    assert len(await network.committed()) == 1
    assert await asyncio.to_thread(worker.member.versions.newest_held) == 0


async def test_a_worker_whose_stake_is_locked_says_so_once_tries_ever_less_and_goes_on_when_it_is_free(
    build: Build, spec: RunSpec, caplog: pytest.LogCaptureFixture
) -> None:
    network = await two_open(build, spec)
    await network.all_validators()
    plain, tries = network.connect, list[float]()
    clock = FastClock()

    def note(name: str, _: tuple[Any, ...]) -> None:
        tries.extend([clock.monotonic()] if name == "submit" else [])

    network.connect = lambda account: Watched(plain(account), before=note)  # type: ignore[arg-type,assignment]
    worker = await network.worker()
    locks = worker.member.run.params.penalty + worker.member.run.params.submission_bond
    await worker.role.provider.unstake(network.run, worker.member.account, locks)  # of twice that
    worker.go()
    (first,) = await network.committed()
    network.chain.mine(3)  # the beacon of its second slot is known now
    await until(lambda: len(tries) >= 5)

    waits = [later - earlier for earlier, later in pairwise(tries[1:5])]
    assert [wait >= 2**k for k, wait in enumerate(waits)] == [True] * 3  # seconds
    said = [line.getMessage() for line in caplog.records]
    assert said.count("not submitted, waiting for open submissions") == 1
    assert said.count("file found again") == 0

    assert await network.live(first.made.commitment) == State.SETTLED
    second = (await network.committed(2))[1]
    assert (second.made.node, second.made.slot) == (worker.member.account, 1)


async def test_a_pot_that_is_empty_is_said_once_and_not_at_every_look(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1)
    breaking(network, "before", reverted("PotTooSmall", {"needed": 5, "pot": 1}), times=4)
    (await network.worker()).go()

    (submission,) = await network.committed()

    said = [line.getMessage() for line in caplog.records]
    assert said.count("not submitted, looking again") == 1
    assert submission.made.slot == 0
