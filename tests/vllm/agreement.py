"""Whether what vLLM sampled is what transformers sees in one prefill of it, token by token and proof by proof.

Where the limits come from: both compute in bfloat16, which keeps 8 bits, in another order; so a state of the last layer
differs in its last bits, a logit of the tiny model (about 1 in size) by up to 2^-7, and so do log-probabilities and
scores. Over all tests of this folder the worst were 0.017 of a log-probability, 0.006 of a deficit, 7 exponents, 3.9 of
a mantissa. A token that is not the seeded choice has a deficit of 0.7 in the median, states of other weights or of
another place have more than 64 of 128 exponents wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hashing.comparison import compare_all
from hashing.proof import build_proofs
from node.engines.base import Engine, Policy
from node.rollouts.rollout import Replay, Rollout, Sample

LOGPROB = DEFICIT = 0.02
SAME = 0.95  # share of tokens that are exactly the replay's own choice
MISMATCHES = 12
MANTISSA = 8.0  # of 128, the mean of a chunk
Prompt = tuple[int, ...]
Row = tuple[int, Prompt]

POLICY = Policy(temperature=1.0, max_output_tokens=40, eos_ids=frozenset(range(12)), group_size=3)
ENDLESS = replace(POLICY, eos_ids=frozenset({1}))  # nearly every output has all of its 40 tokens


def quiet(_done: int, _total: int) -> None:
    return None


def rollouts(rows: Sequence[Row], samples: Sequence[Sample], size: int = POLICY.group_size) -> list[Rollout]:
    return [
        Rollout(row // size, row % size, prompt, s.output_ids, s.logprobs, s.proofs, s.finish, 0.0)
        for (row, prompt), s in zip(rows, samples, strict=True)
    ]


def require_sampled(reference: Engine, seed: bytes, rows: Sequence[Row], samples: Sequence[Sample]) -> None:
    """Every token is the seeded choice, every log-probability and proof that of `reference`'s prefill."""
    replays = reference.replay(seed, rollouts(rows, samples), quiet)
    for sample, replay in zip(samples, replays, strict=True):
        np.testing.assert_allclose(sample.logprobs, replay.logprobs, atol=LOGPROB)
        require_proofs(sample, replay)
    require_chosen(replays)


def require_proofs(sample: Sample, replay: Replay) -> None:
    assert len(sample.proofs) == -(-len(sample.output_ids) // 32)
    for distance in compare_all(sample.proofs, replay.hidden_bits):
        assert distance.exponent_mismatches <= MISMATCHES
        assert distance.mantissa_mean <= MANTISSA


def require_chosen(replays: Sequence[Replay]) -> None:
    deficits = np.concatenate([replay.deficits for replay in replays])
    assert deficits.max() <= DEFICIT
    assert np.mean(deficits == 0) >= SAME


def require_replayed(reference: Engine, seed: bytes, claimed: Sequence[Rollout], replays: Sequence[Replay]) -> None:
    """`replays` say of every token what `reference` says; both see each other's states."""
    for claim, ours, theirs in zip(claimed, replays, reference.replay(seed, claimed, quiet), strict=True):
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=LOGPROB)
        np.testing.assert_allclose(ours.deficits, theirs.deficits, atol=2 * LOGPROB)
        np.testing.assert_allclose(ours.gaps, theirs.gaps, atol=2 * LOGPROB)
        require_proofs(Sample(claim.output_ids, (), build_proofs(ours.hidden_bits), 0), theirs)
