"""The tests that a series is judged by, on values whose answer is known; results on disk; the curves."""

from collections.abc import Sequence
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning_series.judgement import claims, ends, figures, overview, permutation_p, rise_z
from benchmarks.learning_series.plot import curve, plot
from benchmarks.learning_series.results import HeldOut, Result, load, result, save
from benchmarks.learning_series.series import SERIES
from node.devnet.report import Report
from node.errors import ConfigError

SERIES_2 = replace(SERIES["smollm2"], steps=4, examined=(0, 2, 4), ends=2)
LOW, HIGH = [0.1, 0.2, 0.1, 0.2, 0.15, 0.1], [0.6, 0.5, 0.7, 0.6, 0.55, 0.5]


def network(
    arm: str = "learning", seed: int = 0, accuracies: Sequence[float] = (0.12, 0.3, 0.6), **changed: Any
) -> Result:
    held_out = {
        version: HeldOut(mean=mean, standard_error=0.03, prompts=64, samples=4)
        for version, mean in zip((0, 2, 4), accuracies, strict=True)
    }
    fields = {"arm": arm, "seed": seed, "parameters": {"steps": 4}, "held_out": held_out, "rejected": 0, "expired": 0,
              "groups": [LOW, LOW, HIGH, HIGH, []], "failures": [], "seconds": 1.0}  # fmt: skip
    return Result.model_validate(fields | changed)


# --- Tests


def test_the_p_value_is_the_share_of_arrangements_that_reach_the_difference() -> None:
    # All of `last` above all of `first`: one arrangement of comb(8, 4) = 70.
    assert permutation_p([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(1 / comb(8, 4), rel=0.1)
    # A difference of 0 and more: by symmetry as many above as below, and those equal.
    assert permutation_p([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert permutation_p([5, 6, 7, 8], [1, 2, 3, 4]) == 1.0


def test_the_p_value_is_never_zero() -> None:
    assert permutation_p([0.0] * 20, [1.0] * 20) == pytest.approx(1 / 100_001)


def test_chance_alone_gives_small_p_values_as_rarely_as_they_say() -> None:
    import numpy as np

    rng = np.random.default_rng(5)
    small = sum(permutation_p(rng.random(4).tolist(), rng.random(4).tolist()) < 0.2 for _ in range(40))

    assert small <= 17  # mean 8, standard deviation 2.5


def test_ends_are_the_first_and_last_versions_that_have_rollouts() -> None:
    found = network(groups=[[0.1], [], [0.2, 0.3], [0.4], [0.5, 0.6], []])

    assert ends(found, 2) == ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    with pytest.raises(ValueError, match="4 versions with rollouts: first and last 3 would overlap"):
        ends(found, 3)


# --- Claims


def judged(*networks: Result) -> dict[str, bool]:
    rows = [figures(SERIES_2, one) for one in networks]
    return {claim.claim.split(",")[0]: claim.holds for claim in claims(SERIES_2, rows)}


def test_a_series_that_learned_beside_a_flat_control_holds() -> None:
    assert judged(network(), network("control", accuracies=(0.12, 0.11, 0.13))) == {
        "no rollout of an honest worker is rejected": True,
        "seed 0: rewards of the last 2 versions are above those of the first 2": True,
        "seed 0: held-out accuracy at least doubles": True,
        "controls": True,
    }


def test_each_thing_that_must_hold_is_missed_when_it_does_not() -> None:
    assert not judged(network(rejected=16))["no rollout of an honest worker is rejected"]
    flat = network(groups=[LOW, LOW, LOW, LOW, []])
    assert not judged(flat)["seed 0: rewards of the last 2 versions are above those of the first 2"]
    assert not judged(network(accuracies=(0.3, 0.4, 0.59)))["seed 0: held-out accuracy at least doubles"]
    assert not judged(network(accuracies=(0.05, 0.1, 0.15)))["seed 0: held-out accuracy at least doubles"]  # 2.4 errors
    risen = [network("control", seed, accuracies=(0.12, 0.15, 0.20)) for seed in range(2)]
    assert not judged(*risen)["controls"]
    assert judged(risen[0])["controls"]  # of one alone it could be chance


def test_the_overview_has_means_the_worst_p_and_accuracies_by_seed() -> None:
    networks = [network(), network(seed=1, accuracies=(0.1, 0.2, 0.5), groups=[LOW, LOW, LOW, LOW, []])]
    rows = [figures(SERIES_2, one) for one in (*networks, network("control", accuracies=(0.12, 0.11, 0.13)))]

    found = overview(SERIES_2, rows)

    low, high = sum(LOW) / 6, sum(HIGH) / 6
    assert (found["steps"], found["held_out_before"], found["held_out_after"]) == (4, [0.12, 0.1], [0.6, 0.5])
    assert (found["control_before"], found["control_after"]) == ([0.12], [0.13])
    assert found["first_reward"] == pytest.approx(low, abs=1e-4)
    assert found["last_reward"] == pytest.approx((low + high) / 2, abs=1e-4)
    assert found["p_value"] > 0.4  # of the seed that stayed as it was


def test_the_overview_of_no_network_has_no_figures() -> None:
    found = overview(SERIES["tiny"], [])

    assert found == {"steps": 10, "first_reward": None, "last_reward": None, "p_value": None}


def test_a_rise_is_measured_in_standard_errors_of_the_sum() -> None:
    rows = [figures(SERIES_2, network(accuracies=(0.1, 0.2, 0.2))), figures(SERIES_2, network(seed=1))]

    # (0.1 + 0.48) over sqrt(4 * 0.03^2)
    assert rise_z(rows) == pytest.approx(0.58 / 0.06)


def test_rollouts_of_rejected_and_of_expired_submissions_are_counted_apart() -> None:
    verdicts = [{"state": state} for state in ("voided", "slashed", "faulted", "expired")]
    report = Report({"held_out": {}, "seconds": 3.0}, [], verdicts, ["one failed"], [[0.5]])

    found = result("learning", 1, {}, 16, report)

    assert (found.rejected, found.expired, found.failures) == (48, 16, ["one failed"])


# --- Seeds


def test_every_seed_asks_its_own_questions_and_the_control_the_same_ones(tmp_path: Path) -> None:
    shows = [SERIES["smollm2"].show(arm, seed, tmp_path) for seed in (0, 1) for arm in ("learning", "control")]

    assert [show.task for show in shows] == [None, "lottery", None, "lottery"]
    assert [show.settings for show in shows] == [("seed=0",), ("seed=0",), ("seed=100000",), ("seed=100000",)]
    assert all(show.cheat is None for show in shows)


# --- Files


def test_a_result_is_read_back_as_it_was_and_missing_where_nothing_was_saved(tmp_path: Path) -> None:
    save(network(), tmp_path)

    assert load(tmp_path, "learning", 0, {"steps": 4}) == network()
    assert load(tmp_path, "learning", 1, {"steps": 4}) is None


def test_a_result_of_other_parameters_or_of_nothing_is_named(tmp_path: Path) -> None:
    save(network(), tmp_path)
    (tmp_path / "control-0.json").write_text("{")

    with pytest.raises(ConfigError, match=r"learning-0\.json was made with other parameters"):
        load(tmp_path, "learning", 0, {"steps": 5})
    with pytest.raises(ConfigError, match=r"control-0\.json cannot be used"):
        load(tmp_path, "control", 0, {"steps": 4})


def test_a_curve_is_of_held_out_accuracies_or_else_of_rewards() -> None:
    versions, values, errors = curve(network())
    assert (versions.tolist(), values.tolist(), errors.tolist()) == ([0, 2, 4], [12, 30, 60], [3, 3, 3])

    versions, values, _ = curve(network(held_out={}, groups=[[0.25, 0.75], [], [1.0]]))
    assert (versions.tolist(), values.tolist()) == ([0, 2], [50, 100])


def test_the_same_results_draw_the_same_picture(tmp_path: Path) -> None:
    found = [network(), network(seed=1, accuracies=(0.1, 0.2, 0.5)), network("control", accuracies=(0.12, 0.1, 0.1))]

    for name in ("a.svg", "b.svg"):
        plot(SERIES_2, found, tmp_path / name)

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "reward of the task (2 seeds)" in (tmp_path / "a.svg").read_text()
