"""Calibration on engines whose errors are known, and the presets that it wrote."""

import json
import math
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from hashing.proof import build_proofs
from node.checks.calibration import Trial, calibrate
from node.checks.sampling import honest_tail, log_evidence
from node.errors import ConfigError
from node.rollouts.rollout import Replay, Rollout
from node.runspec import ProofSpec, SamplingTestSpec

SIGMA = 0.1  # of the error of a difference of two scores
TOKENS = 64


def trial(rng: np.random.Generator, pair: str = "a", sigma: float = SIGMA, noise: float = 0.003) -> Trial:
    """An honest rollout whose verifier's scores differ by a normal error of width `sigma`, states by `noise`."""
    values = rng.standard_normal((TOKENS, 256)).astype(np.float32)
    seen = values * (1 + noise * rng.standard_normal(values.shape).astype(np.float32))
    gaps = rng.exponential(0.7, TOKENS)
    missed = sigma * rng.standard_normal(TOKENS) > gaps
    logprobs = -rng.random(TOKENS) - 0.1
    rollout = Rollout(
        group=0, index=0, prompt_ids=(1,), output_ids=tuple(range(TOKENS)), logprobs=tuple(logprobs.tolist()),
        proofs=build_proofs((values.view(np.uint32) >> 16).astype(np.uint16)), finish=1, reward=0.0,
    )  # fmt: skip
    return Trial(
        pair,
        rollout,
        Replay(
            hidden_bits=(seen.view(np.uint32) >> 16).astype(np.uint16),
            logprobs=(logprobs + 0.02).astype(np.float32),
            gaps=gaps.astype(np.float32),
            deficits=np.where(missed, gaps, 0).astype(np.float32),
        ),
    )


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    rng = np.random.default_rng(1)
    return [trial(rng) for _ in range(200)]


def test_the_tail_is_that_of_the_known_errors_stretched_and_floored(trials: list[Trial]) -> None:
    tail = calibrate(trials).sampling_test.tail

    for x in (0.05, 0.1, 0.2):
        known = 0.5 * math.erfc(x / (SIGMA * math.sqrt(2)))
        assert known / 1.6 < honest_tail(np.array([1.25 * x]), tail)[0] < 1.6 * known
    assert tail[-1][1] == 1e-4
    assert [x for x, _ in tail] == sorted(x for x, _ in tail)
    assert [p for _, p in tail] == sorted((p for _, p in tail), reverse=True)


def test_honest_work_seen_later_gives_no_evidence_and_wider_errors_do(trials: list[Trial]) -> None:
    rng = np.random.default_rng(2)
    tail = calibrate(trials).sampling_test.tail

    honest = [trial(rng).replay for _ in range(200)]
    fraud = [trial(rng, sigma=4 * SIGMA).replay for _ in range(20)]

    assert np.exp([log_evidence(r.gaps, r.deficits, tail) for r in honest]).mean() <= 1
    assert sum(log_evidence(r.gaps, r.deficits, tail) for r in fraud) > math.log(1e9)


def test_thresholds_are_above_the_widest_figure_and_within_the_caps(trials: list[Trial]) -> None:
    found = calibrate(trials)

    worst = found.measured["exponent_mismatches_max"]
    assert found.proof.exponent_mismatches == min(math.ceil(2 * worst) + 1, 38)
    assert found.measured["mantissa_mean_max"] < found.proof.mantissa_mean <= 10
    assert found.measured["logprob_max_error_max"] == pytest.approx(0.02, abs=1e-5)
    assert found.proof.logprob_max_error == pytest.approx(0.13, abs=1e-4)
    assert found.measured["tokens"] == 200 * TOKENS


def test_the_worst_pair_decides(trials: list[Trial]) -> None:
    rng = np.random.default_rng(3)
    wider = [trial(rng, pair="b", sigma=2 * SIGMA) for _ in range(200)]

    narrow, both = calibrate(trials), calibrate([*trials, *wider])

    at = np.array([0.3])
    assert honest_tail(at, both.sampling_test.tail)[0] > 3 * honest_tail(at, narrow.sampling_test.tail)[0]
    assert {name for name in both.measured if name.startswith("held_out")} == {
        "held_out_mean_evidence[a]",
        "held_out_mean_evidence[b]",
    }


def test_thresholds_stop_at_the_caps_when_the_margin_would_go_beyond() -> None:
    rng = np.random.default_rng(4)
    noisy = [trial(rng, noise=0.05) for _ in range(8)]

    found = calibrate(noisy)

    assert 5 < found.measured["mantissa_mean_max"] <= 10
    assert found.proof.mantissa_mean == 10


def test_engines_that_differ_beyond_the_caps_are_refused() -> None:
    rng = np.random.default_rng(5)

    with pytest.raises(ConfigError, match="caps"):
        calibrate([trial(rng, noise=0.2) for _ in range(8)])


def test_an_absurd_replay_is_refused(trials: list[Trial]) -> None:
    broken = Trial("a", trials[0].rollout, trials[1].replay)
    broken.replay.gaps[3] = np.nan

    with pytest.raises(ConfigError, match="gaps"):
        calibrate([broken])


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_a_preset_is_whole_within_the_caps_and_measured(name: str) -> None:
    preset: dict[str, Any] = json.loads((files("node") / "presets" / f"{name}.json").read_text())

    proof = ProofSpec(**preset["proof"])
    test = SamplingTestSpec.model_validate_json(json.dumps(preset["sampling_test"]))
    honest = preset["measured"]["honest"]

    assert (test.suspect, test.alarm) == (1e5, 1e9)
    assert [x for x, _ in test.tail] == sorted({x for x, _ in test.tail})
    assert [p for _, p in test.tail] == sorted((p for _, p in test.tail), reverse=True)
    assert honest["exponent_mismatches_max"] < proof.exponent_mismatches < 38
    assert honest["mantissa_mean_max"] < proof.mantissa_mean < 10
    assert max(mean for figure, mean in honest.items() if figure.startswith("held_out")) <= 1


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
@pytest.mark.parametrize("fraud", ["other-model", "edited-tokens"])
def test_gross_frauds_were_refused_with_the_presets_thresholds(name: str, fraud: str) -> None:
    preset: dict[str, Any] = json.loads((files("node") / "presets" / f"{name}.json").read_text())

    power = preset["measured"]["frauds"][fraud]

    assert power["files_rejected_by_sampling"] == power["files"]
    assert power["leaves_rejected_by_proof"] > power["leaves"] / 2
