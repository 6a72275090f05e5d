"""The arithmetic that the vLLM engine is measured by, on values worked out by hand."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from benchmarks.engine_speed.agreement import pair_figures, same_share
from benchmarks.engine_speed.figures import Spread, agreeing_share, costs, equal_until, ratios, spread
from benchmarks.engine_speed.prompts import draw
from benchmarks.engine_speed.timing import Runs, processor_seconds
from benchmarks.engine_speed.wire import bytes_per_token
from hashing.proof import build_proofs
from node.launch import measured
from node.rollouts.rollout import Replay, Rollout
from node.runspec import ProofSpec, RunSpec, SamplingTestSpec


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    """Of which the deep checks need the thresholds alone."""
    shipped = measured("tiny")
    tail = [tuple(entry) for entry in shipped["sampling_test"]["tail"]]
    test = SamplingTestSpec(**{**shipped["sampling_test"], "tail": tail})
    return RunSpec.model_construct(proof=ProofSpec(**shipped["proof"]), sampling_test=test)


def looked_at(tokens: int, logprob: float = -1.0, deficits: dict[int, float] | None = None) -> tuple[Rollout, Replay]:
    """A rollout whose states are the replay's own, and whose log-probabilities are -1."""
    states = np.random.default_rng(tokens).normal(size=(tokens, 128)).astype(np.float32).view(np.uint32) >> 16
    bits_TH = states.astype(np.uint16)
    rollout = Rollout(0, 0, (1, 2, 3), tuple(range(tokens)), (-1.0,) * tokens, build_proofs(bits_TH), 1, 0.0)
    deficits_T = np.zeros(tokens, dtype=np.float32)
    for at, deficit in (deficits or {}).items():
        deficits_T[at] = deficit
    gaps_T = np.where(deficits_T > 0, np.float32(0), np.float32(1))
    return rollout, Replay(bits_TH, np.full(tokens, logprob, np.float32), gaps_T, deficits_T)


def test_a_spread_is_the_median_and_the_quartiles_around_it() -> None:
    assert spread([5, 1, 3, 2, 4]) == Spread(median=3, low=2, high=4)
    # Between the values 1, 2, 3, 4 quartiles lie at places 0.75, 1.5 and 2.25 from the first.
    assert spread([4, 3, 2, 1]) == Spread(median=2.5, low=1.75, high=3.25)
    assert spread([7.5]) == Spread(7.5, 7.5, 7.5)


def test_the_cost_is_the_share_of_speed_that_each_pair_loses() -> None:
    # The same tokens in 10 s and 12.5 s: 80% of the speed. In 10 s and 8 s: 125% of it. In 9 s and 10 s: 90%.
    found = costs([10, 10, 9], [12.5, 8, 10])  # losses of 20, -25 and 10 percent

    assert (found.low, found.median, found.high) == pytest.approx((-7.5, 10, 15))


def test_runs_are_compared_only_in_pairs() -> None:
    with pytest.raises(ValueError):
        costs([1.0, 2.0], [1.0])
    with pytest.raises(ValueError):
        ratios([1.0], [1.0, 2.0])


def test_ratios_are_taken_pair_by_pair() -> None:
    # Ratio of the medians: 3 / 10; median of the ratios 0.5, 0.1, 0.4: 0.4.
    assert ratios([5, 1, 4], [10, 10, 10]).median == pytest.approx(0.4)


def test_the_rate_is_that_of_the_median_run() -> None:
    assert Runs(seconds=[16, 8, 1000]).rate(4096) == 256


def test_processor_time_is_that_of_this_process_and_of_those_it_started() -> None:
    before = processor_seconds()
    work = "import time; began = time.process_time()\nwhile time.process_time() - began < 0.2: pass\nprint(); input()"
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert processor_seconds() - before >= 0.19  # ticks are of 10 ms


def test_equal_tokens_are_counted_until_the_first_difference() -> None:
    assert equal_until([1, 2, 3], [1, 2, 3]) == (3, 3)
    assert equal_until([1, 2, 3, 4], [1, 9, 3, 4]) == (1, 2)  # what follows a difference has another context
    assert equal_until([5], [6]) == (0, 1)
    assert equal_until([1, 2], [1, 2, 3]) == (2, 3)  # one ended where the other went on: that is a difference


def test_the_agreeing_share_is_over_tokens_that_had_the_same_context() -> None:
    # 3 of 3, 1 of 2, 0 of 1.
    assert agreeing_share([([1, 2, 3], [1, 2, 3]), ([1, 2, 3, 4], [1, 9, 3, 4]), ([5], [6])]) == pytest.approx(4 / 6)


def test_rollouts_of_two_engines_are_compared_row_by_row() -> None:
    def slot(*outputs: tuple[int, ...]) -> list[Rollout]:
        return [Rollout(0, i, (1,), ids, (0.0,) * len(ids), (), 1, 0.0) for i, ids in enumerate(outputs)]

    made = {"transformers": [slot((1, 2), (3, 4)), slot((5,))], "vllm": [slot((1, 2), (3, 9)), slot((5,))]}

    assert same_share(made) == pytest.approx(4 / 5)


def test_an_engine_that_sees_the_same_states_is_at_no_distance(spec: RunSpec) -> None:
    found = pair_figures(spec, [[looked_at(40), looked_at(33)]])

    assert (found.rollouts, found.tokens) == (2, 73)
    assert found.chunks == 3  # 32 and 8 tokens, 32 and 1: one token alone is not judged
    assert (found.mismatches_mean, found.mismatches_max, found.mantissa_mean, found.mantissa_median_max) == (0, 0, 0, 0)
    assert (found.missed_share, found.deficit_max, found.logprob_error_max) == (0, 0, 0)
    assert (found.leaves_rejected, found.slots_rejected) == (0, 0)


def test_missed_choices_and_errors_are_those_of_the_worst_token(spec: RunSpec) -> None:
    near = looked_at(32, deficits={3: 0.001, 17: 0.004})
    found = pair_figures(spec, [[near, looked_at(32, logprob=-1.25)]])

    assert found.missed_share == 2 / 64
    assert found.deficit_max == pytest.approx(0.004)
    assert found.logprob_error_max == pytest.approx(0.25)


def test_what_the_checks_refuse_is_counted_by_leaf_and_by_slot(spec: RunSpec) -> None:
    forged = looked_at(32, deficits=dict.fromkeys(range(32), 5.0))
    found = pair_figures(spec, [[looked_at(32), forged], [looked_at(40)]])

    assert (found.leaves_rejected, found.slots_rejected) == (1, 1)


def test_full_chunks_take_as_many_bytes_as_in_the_paper() -> None:
    rollout, _ = looked_at(64)

    assert bytes_per_token([rollout])["proofs"] == 258 / 32
    # A length of 4, a head of 13, four lists with lengths of 4, 3 prompt tokens, 64 output tokens and log-probabilities
    # of 4 bytes each, two proofs, and 5 bytes of finish and reward.
    assert bytes_per_token([rollout])["file"] == (4 + 13 + 16 + 12 + 512 + 2 * 258 + 5) / 64


def test_a_started_chunk_takes_a_whole_proof() -> None:
    rollout, _ = looked_at(8)

    assert bytes_per_token([rollout])["proofs"] == 258 / 8


def test_rounds_are_the_same_again_and_eight_rows_share_a_prompt() -> None:
    pool = [(number,) for number in range(1000)]
    one = draw("some", 24, pool)

    assert one == draw("some", 24, pool)
    assert one != draw("other", 24, pool)
    assert [len(set(one.prompts[at : at + 8])) for at in (0, 8, 16)] == [1, 1, 1]
    assert len(set(one.prompts)) == 3
