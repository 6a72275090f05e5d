"""Check 8, TOPLOC: the proofs fit the hidden states that a prefill of the claimed model gives.

Every judged chunk must be within all thresholds of the run (inclusive): none is forgiven. Signs count like exponents,
for whoever flips them has other states. Thresholds are calibrated (`node.checks.calibration`); the spec's type bounds
them by 38/10/8, at which a linear map of token embeddings passes no chunk (at 60/40/40 it passes 22%).
"""

from dataclasses import dataclass

from hashing.comparison import Distance, compare_all
from hashing.encoding import CHUNK
from hashing.errors import MalformedProof
from node.rollouts.rollout import Replay, Rollout
from node.runspec import ProofSpec
from node.verdicts import Check, Rejected

MIN_JUDGED_TOKENS = 8  # shorter chunks miss by up to 64 exponents honestly: 128 of few values reach into the noise


@dataclass(frozen=True, slots=True)
class Widest:
    """The largest figures over the judged chunks of a rollout, each on its own; `mismatches` counts signs too."""

    mismatches: int = 0
    mantissa_mean: float = 0.0
    mantissa_median: float = 0.0


def judged(rollout: Rollout, replay: Replay) -> tuple[Distance, ...]:
    """Distances of the chunks long enough to be judged alone; all proofs must parse, the short chunk's too.

    Raises:
        MalformedProof: not one proof per started chunk, or one that does not parse.
    """
    distances = compare_all(rollout.proofs, replay.hidden_bits)
    full, rest = divmod(len(rollout.output_ids), CHUNK)
    return distances[: full + (rest >= MIN_JUDGED_TOKENS)]


def widest(distances: tuple[Distance, ...]) -> Widest:
    """Over no distances, zeros."""
    if not distances:
        return Widest()
    return Widest(
        max(mismatches(distance) for distance in distances),
        max(distance.mantissa_mean for distance in distances),
        max(distance.mantissa_median for distance in distances),
    )


def mismatches(distance: Distance) -> int:
    """Exponents and signs that differ, together; at most 128."""
    return distance.exponent_mismatches + distance.sign_mismatches


def verify_proofs(spec: ProofSpec, leaf: int, rollout: Rollout, replay: Replay) -> Rejected | None:
    """Every chunk's proof is within the thresholds. `replay` must not be absurd (`node.checks.sanity`)."""
    bounds = f"{spec.exponent_mismatches}, {spec.mantissa_mean:g}, {spec.mantissa_median:g}"
    try:
        distances = judged(rollout, replay)
    except MalformedProof as error:
        return Rejected(Check.TOPLOC, leaf, "malformed proof", bounds, str(error))
    for chunk, distance in enumerate(distances):
        if not _within(spec, distance):
            figures = f"{mismatches(distance)}, {distance.mantissa_mean:.4g}, {distance.mantissa_median:g}"
            detail = f"chunk {chunk}: exponent and sign mismatches of 128, mantissa error mean, median"
            return Rejected(Check.TOPLOC, leaf, figures, bounds, detail)
    return None


def _within(spec: ProofSpec, distance: Distance) -> bool:
    return (
        mismatches(distance) <= spec.exponent_mismatches
        and distance.mantissa_mean <= spec.mantissa_mean
        and distance.mantissa_median <= spec.mantissa_median
    )
