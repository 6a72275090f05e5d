"""Log-probabilities, and replays that cannot be right: an engine's fault is nobody else's."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from node.checks.base import deep
from node.checks.logprobs import logprob_error, verify_logprobs
from node.verdicts import Accepted, Check, Rejected, Undecided


def test_log_probabilities_within_both_bounds_pass(case: Any) -> None:
    rollout, replay = case.subject.rollouts[0], case.replays[0]
    shifted = replace(replay, logprobs=np.array(rollout.logprobs, np.float32) - np.float32([0.25, 0, 0, 0, 0, 0]))

    error = logprob_error(rollout, shifted)

    assert error.mean == pytest.approx(0.25 / 6)
    assert error.largest == pytest.approx(0.25)
    assert isinstance(deep(case.subject, {0: shifted}), Accepted)


def test_one_log_probability_far_off_is_rejected(case: Any) -> None:
    rollout = case.subject.rollouts[1]
    shifted = np.array(rollout.logprobs, np.float32)
    shifted[7] -= 0.6  # bounds: 0.1 on average, 0.5 at most

    verdict = deep(case.subject, {1: replace(case.replays[1], logprobs=shifted)})

    assert isinstance(verdict, Rejected)
    assert (verdict.check, verdict.leaf, verdict.threshold) == (Check.LOGPROBS, 1, "0.1, 0.5")
    assert not verdict.check.slashes


def test_log_probabilities_off_on_average_are_rejected(case: Any) -> None:
    rollout = case.subject.rollouts[1]
    shifted = replace(case.replays[1], logprobs=np.array(rollout.logprobs, np.float32) - np.float32(0.2))

    verdict = verify_logprobs(case.subject.spec.proof, 1, rollout, shifted)

    assert verdict is not None
    assert verdict.measured == "0.2, 0.2"


@pytest.mark.parametrize("field", ["logprobs", "gaps", "deficits"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_replay_with_no_number_decides_nothing(case: Any, field: str, value: float) -> None:
    values = getattr(case.replays[0], field).copy()
    values[2] = value

    assert isinstance(deep(case.subject, {0: replace(case.replays[0], **{field: values})}), Undecided)


@pytest.mark.parametrize(
    "changes",
    [
        {"logprobs": np.full(6, 0.5, np.float32)},
        {"gaps": np.full(6, -0.1, np.float32)},
        {"deficits": np.full(6, -0.1, np.float32)},
        {"gaps": np.full(6, 3.0, np.float32), "deficits": np.full(6, 1.0, np.float32)},
        {"gaps": np.ones(5, np.float32)},
        {"logprobs": np.zeros((6, 1), np.float32)},
        {"hidden_bits": np.zeros((5, 256), np.uint16)},
        {"hidden_bits": np.zeros((6, 100), np.uint16)},
        {"hidden_bits": np.zeros(6, np.uint16)},
        {"hidden_bits": np.full((6, 256), 0x7FC0, np.uint16)},
        {"hidden_bits": np.full((6, 256), 0xFF80, np.uint16)},
    ],
)
def test_an_impossible_replay_decides_nothing(case: Any, changes: dict[str, Any]) -> None:
    assert isinstance(deep(case.subject, {0: replace(case.replays[0], **changes)}), Undecided)


def test_one_impossible_replay_leaves_the_other_leaves_undecided_too(case: Any) -> None:
    broken = replace(case.replays[2], gaps=np.full(35, np.nan, np.float32))
    fraud = replace(case.replays[1], hidden_bits=case.replays[1].hidden_bits ^ np.uint16(0x8000))

    assert isinstance(deep(case.subject, {1: fraud}), Rejected)
    assert isinstance(deep(case.subject, {1: fraud, 2: broken}), Undecided)


def test_no_replays_find_nothing(case: Any) -> None:
    assert deep(case.subject, {}) == Accepted()


def test_what_was_measured_is_told_of_an_accepted_submission(case: Any) -> None:
    verdict = deep(case.subject, case.replays)

    assert isinstance(verdict, Accepted)
    figures = dict(verdict.measured)
    assert figures["tokens"] == 121
    assert figures["tokens_missed"] == 0
    assert figures["logprob_max_error"] == pytest.approx(0.01, abs=1e-6)
