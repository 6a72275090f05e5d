"""Check 9: evidence by hand, on simulated engines whose errors are known, and on frauds."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ledger.base import WHOLE_FILE
from node.checks.base import deep
from node.checks.sampling import FLOOR, RHOS, accumulate, honest_tail, log_evidence, verify_file, verify_rollout
from node.rollouts.rollout import Replay
from node.runspec import SamplingTestSpec
from node.verdicts import Accepted, Check, Rejected

SIGMA = 0.08  # of one score's error; of a difference of two it is sqrt(2) times that
TAIL = [(1.25 * x, max(FLOOR, 0.5 * math.erfc(x / (2 * SIGMA)))) for x in np.linspace(0, 0.6, 61).tolist()]
STEP = [(0.0, 0.5), (1.0, 0.01), (10.0, 0.0001)]

Engine = Callable[[npt.NDArray[np.float64], np.random.Generator], npt.NDArray[np.float64]]


def simulate(rng: np.random.Generator, tokens: int, worker: Engine) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Gaps and deficits of a rollout whose worker saw `worker(scores)`; 200 tokens in the vocabulary."""
    scores_TV = 2.0 * rng.standard_normal((tokens, 200)) + rng.gumbel(size=(tokens, 200))
    emitted = worker(scores_TV, rng).argmax(axis=1)
    ordered = np.sort(scores_TV, axis=1)
    return ordered[:, -1] - ordered[:, -2], ordered[:, -1] - scores_TV[np.arange(tokens), emitted]


def noisy(sigma: float) -> Engine:
    return lambda scores, rng: scores + sigma * rng.standard_normal(scores.shape)


def replay_of(gaps: npt.ArrayLike, deficits: npt.ArrayLike) -> Replay:
    gaps_T = np.array(gaps, dtype=np.float32)
    return Replay(np.zeros((len(gaps_T), 256), np.uint16), gaps_T * 0 - 1, gaps_T, np.array(deficits, dtype=np.float32))


def test_the_tail_is_interpolated_in_its_logarithm_and_constant_beyond_its_ends() -> None:
    values = honest_tail(np.array([0.0, 0.5, 1.0, 5.5, 100.0]), STEP)

    assert values == pytest.approx([0.5, math.sqrt(0.5 * 0.01), 0.01, math.sqrt(0.01 * 0.0001), 0.0001])


def test_the_tail_stays_within_floor_and_ceiling_whatever_a_spec_says() -> None:
    assert honest_tail(np.array([0.0, 1.0]), [(0.0, 1.0), (1.0, 1e-30)]) == pytest.approx([0.5, 1e-4])


def test_evidence_of_one_token_is_as_worked_out_by_hand() -> None:
    def s0(x: float) -> float:  # STEP between 0 and 1
        return float(0.5 * (0.01 / 0.5) ** x)

    missed = [s0(0.8 / rho) / s0(0.8) for rho in RHOS]
    matched = [(1 - s0(0.8 / rho)) / (1 - s0(0.8)) for rho in RHOS]

    assert log_evidence([0.8], [0.8], STEP) == pytest.approx(math.log(sum(missed) / 4))
    assert log_evidence([0.8], [0.0], STEP) == pytest.approx(math.log(sum(matched) / 4))


def test_evidence_of_two_tokens_multiplies_for_each_width_before_it_is_averaged() -> None:
    one = [0.5 * 0.02 ** (0.4 / rho) for rho in RHOS]
    s0 = 0.5 * 0.02**0.4
    expected = sum((s / s0) * ((1 - s) / (1 - s0)) for s in one) / 4

    assert log_evidence([0.4, 0.4], [0.4, 0.0], STEP) == pytest.approx(math.log(expected))


def test_a_wildly_wrong_token_weighs_a_hundred_in_the_widest_alternative_only() -> None:
    # far beyond 16 times the table: all tails are at the floor, the widest alternative supposes 1% arbitrary tokens
    assert log_evidence([500.0], [500.0], STEP) == pytest.approx(math.log((1 + 1 + 1 + 100) / 4))


def test_honest_evidence_has_mean_at_most_one() -> None:
    rng = np.random.default_rng(3)
    logs = [log_evidence(*simulate(rng, 80, noisy(SIGMA)), TAIL) for _ in range(300)]

    assert np.exp(logs).mean() <= 1
    assert max(logs) < math.log(1e5)
    assert accumulate(logs) < math.log(1e5)


def test_errors_twice_as_wide_reach_the_alarm_over_many_tokens() -> None:
    rng = np.random.default_rng(4)
    logs = [log_evidence(*simulate(rng, 100, noisy(2.5 * SIGMA)), TAIL) for _ in range(20)]

    assert accumulate(logs) > math.log(1e9)


def test_another_model_reaches_the_alarm_in_one_rollout() -> None:
    rng = np.random.default_rng(5)
    gaps, deficits = simulate(rng, 64, noisy(1.5))

    verdict = verify_rollout(spec_of(TAIL), 3, replay_of(gaps, deficits))

    assert isinstance(verdict, Rejected)
    assert (verdict.check, verdict.leaf) == (Check.SAMPLING, 3)
    assert float(verdict.measured) > float(verdict.threshold) == pytest.approx(math.log(1e9), abs=0.01)


def test_arbitrary_tokens_reach_the_alarm_in_one_rollout() -> None:
    rng = np.random.default_rng(6)

    evidence = log_evidence(*simulate(rng, 30, lambda scores, rng: rng.random(scores.shape)), TAIL)

    assert evidence > math.log(1e9)


def test_a_best_of_many_by_editing_a_tenth_of_the_tokens_reaches_the_alarm() -> None:
    rng = np.random.default_rng(7)

    def edits(scores: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
        chosen = rng.random(len(scores)) < 0.1
        return np.where(chosen[:, None], rng.random(scores.shape), scores)

    logs = [log_evidence(*simulate(rng, 64, edits), TAIL) for _ in range(4)]

    assert accumulate(logs) > math.log(1e9)


# --- The whole file


def spec_of(tail: list[tuple[float, float]]) -> SamplingTestSpec:
    return SamplingTestSpec(tail=tail, suspect=1e5, alarm=1e9)


def test_evidence_accumulates_as_one_plus_m_times_e() -> None:
    assert accumulate([]) == -math.inf
    assert accumulate([math.log(3)]) == pytest.approx(math.log(3))
    # M: 0 -> 3 -> (1 + 3) 0.5 = 2 -> (1 + 2) 7 = 21
    assert accumulate([math.log(3), math.log(0.5), math.log(7)]) == pytest.approx(math.log(21))


def test_accumulated_evidence_does_not_overflow() -> None:
    assert accumulate([2000.0, 2000.0]) == pytest.approx(4000.0)


def test_leaves_below_the_alarm_reject_the_file_together(case: Any) -> None:
    # Three wild tokens of ten: log evidence about 12.5 a leaf; the alarm is at 20.7.
    gaps, deficits = [500.0] * 10, [500.0] * 3 + [0.0] * 7
    spec = spec_of(STEP)
    leaf = replay_of(gaps, deficits)

    assert verify_rollout(spec, 0, leaf) is None
    assert verify_file(spec, [leaf]) is None
    verdict = verify_file(spec, [leaf, leaf])

    assert isinstance(verdict, Rejected)
    assert (verdict.check, verdict.leaf) == (Check.SAMPLING, WHOLE_FILE)


def test_deep_checks_name_a_leaf_first_and_the_file_only_where_no_leaf_alone_suffices(case: Any) -> None:
    def missing(leaf: int, count: int) -> Replay:
        replay = case.replays[leaf]
        tokens = len(replay.gaps)
        far = np.full(tokens, 500.0, dtype=np.float32)
        return replace(replay, gaps=far, deficits=np.where(np.arange(tokens) < count, far, np.float32(0)))

    few = deep(case.subject, {leaf: missing(leaf, 4) for leaf in (0, 1, 2)})
    many = deep(case.subject, {0: missing(0, 4), 1: missing(1, 9), 2: missing(2, 9)})

    assert isinstance(few, Rejected)
    assert isinstance(many, Rejected)
    assert (few.check, few.leaf) == (Check.SAMPLING, WHOLE_FILE)
    assert (many.check, many.leaf) == (Check.SAMPLING, 1)


def test_a_few_near_ties_pass(case: Any) -> None:
    replay = case.replays[1]
    gaps, deficits = replay.gaps.copy(), replay.deficits.copy()
    gaps[3] = deficits[3] = 0.02

    verdict = deep(case.subject, {1: replace(replay, gaps=gaps, deficits=deficits)})

    assert isinstance(verdict, Accepted)
    assert dict(verdict.measured)["tokens_missed"] == 1
