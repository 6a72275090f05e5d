"""What one engine says of another's honest work: distances of proofs, missed choices, and what the checks reject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from node.checks.base import deep_leaves
from node.checks.toploc import judged, mismatches
from node.rollouts.rollout import Replay, Rollout
from node.runspec import RunSpec
from node.verdicts import Accepted

from .figures import agreeing_share

Slot = Sequence[tuple[Rollout, Replay]]


@dataclass(frozen=True, slots=True)
class PairFigures:
    """Of all rollouts of one generating engine, looked at by one checking engine.

    chunks: long enough to be judged alone. missed_share: of tokens that are not exactly the seeded choice. A leaf or
    slot counts as rejected unless the deep checks accept it.
    """

    rollouts: int
    tokens: int
    chunks: int
    mismatches_mean: float
    mismatches_max: int
    mantissa_mean: float
    mantissa_mean_max: float
    mantissa_median_max: float
    missed_share: float
    deficit_max: float
    logprob_error_max: float
    leaves_rejected: int
    slots_rejected: int

    def __str__(self) -> str:
        rejected = f"{self.leaves_rejected} of {self.rollouts} rollouts rejected"
        return (
            f"{rejected}; mismatches {self.mismatches_mean:.2f}, at most {self.mismatches_max}; mantissa "
            f"{self.mantissa_mean:.2f}, at most {self.mantissa_mean_max:.2f}, its median {self.mantissa_median_max:g}; "
            f"choice missed by {100 * self.missed_share:.2f}% of tokens, at most by {self.deficit_max:.3f}; "
            f"log-probabilities off by at most {self.logprob_error_max:.3f}"
        )

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 6) for name, value in asdict(self).items()}


def pair_figures(spec: RunSpec, slots: Sequence[Slot]) -> PairFigures:
    leaves = [leaf for slot in slots for leaf in slot]
    distances = [distance for rollout, replay in leaves for distance in judged(rollout, replay)]
    missed = [mismatches(distance) for distance in distances] or [0]
    means = [distance.mantissa_mean for distance in distances] or [0.0]
    deficits = np.concatenate([replay.deficits for _, replay in leaves])
    errors = [np.abs(np.array(rollout.logprobs) - replay.logprobs).max() for rollout, replay in leaves]
    return PairFigures(
        rollouts=len(leaves),
        tokens=deficits.size,
        chunks=len(distances),
        mismatches_mean=float(np.mean(missed)),
        mismatches_max=max(missed),
        mantissa_mean=float(np.mean(means)),
        mantissa_mean_max=max(means),
        mantissa_median_max=max((distance.mantissa_median for distance in distances), default=0.0),
        missed_share=int(np.count_nonzero(deficits)) / deficits.size,
        deficit_max=float(deficits.max()),
        logprob_error_max=float(max(errors)),
        leaves_rejected=sum(not _accepted(spec, [leaf]) for leaf in leaves),
        slots_rejected=sum(not _accepted(spec, slot) for slot in slots),
    )


def _accepted(spec: RunSpec, slot: Slot) -> bool:
    """By the checks that a validator runs after a replay."""
    rollouts = {leaf: rollout for leaf, (rollout, _) in enumerate(slot)}
    replays = {leaf: replay for leaf, (_, replay) in enumerate(slot)}
    return isinstance(deep_leaves(spec, rollouts, replays), Accepted)


def same_share(made: Mapping[str, Sequence[Sequence[Rollout]]]) -> float:
    """Of the tokens that both engines sampled after the same tokens, how many are the same."""
    one, other = ([rollout.output_ids for slot in slots for rollout in slot] for slots in made.values())
    return agreeing_share(zip(one, other, strict=True))
