"""Check 9, sampling: the tokens are the seeded choices of the claimed model, judged on evidence that adds up.

Honest engines disagree on near-ties, so no single token convicts. Each token gives a likelihood ratio between errors
larger than honest ones (by a factor rho) and honest ones; products of such ratios have mean at most 1 on honest work,
so the chance that an honest rollout ever reaches c is at most 1 / c (Ville). Source: protocol,
"Sampling test".

The tail table S0 of the RunSpec already holds the safety factor on x and the floor (`node.checks.calibration` puts
them there); the check interpolates it and applies the floor once more, whatever the spec says.

Beyond rho times the honest errors both tails are at their floor, and a wildly wrong token would weigh nothing. So the
widest alternative also supposes that a hundredth of all tokens is arbitrary: S_16(x) = max(S0(x / 16), 0.01).

Letters: T tokens.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ledger.base import WHOLE_FILE
from node.rollouts.rollout import Replay
from node.runspec import SamplingTestSpec
from node.verdicts import Check, Rejected

Tail = Sequence[tuple[float, float]]  # (x, P(score-difference error > x)), x ascending
Floats = npt.NDArray[np.float64]

RHOS = (1.5, 2.0, 4.0, 16.0)  # how many times wider a fraud's errors may be
FLOOR = 1e-4  # the least honest probability ever assumed: one bad token can weigh at most 1 / FLOOR
CEILING = 0.5  # an error has either sign
ARBITRARY = 0.01  # share of arbitrary tokens that the widest alternative supposes


def log_evidence(gaps: npt.ArrayLike, deficits: npt.ArrayLike, tail: Tail) -> float:
    """Natural logarithm of a rollout's evidence E_r against its maker; 0 or less is what honest work gives on average.

    gaps, deficits: (T,), as in `Replay`, finite and not negative.
    """
    gaps_T, deficits_T = np.asarray(gaps, dtype=np.float64), np.asarray(deficits, dtype=np.float64)
    missed_T = deficits_T > 0
    x_T = np.where(missed_T, deficits_T, gaps_T)
    honest_T = honest_tail(x_T, tail)
    sums = [float(_log_ratios(missed_T, _alternative(x_T, tail, rho), honest_T).sum()) for rho in RHOS]
    return float(np.logaddexp.reduce(sums)) - math.log(len(RHOS))


def accumulate(log_evidences: Iterable[float]) -> float:
    """Logarithm of M after M <- (1 + M) E_r over rollouts in order, from M = 0; -inf over none."""
    total = -math.inf
    for evidence in log_evidences:
        total = float(np.logaddexp(0.0, total)) + evidence
    return total


def verify_rollout(spec: SamplingTestSpec, leaf: int, replay: Replay) -> Rejected | None:
    """The leaf's own evidence is below the alarm. `replay` must not be absurd (`node.checks.sanity`)."""
    evidence = log_evidence(replay.gaps, replay.deficits, spec.tail)
    missed = int(np.count_nonzero(replay.deficits > 0))
    detail = f"log evidence; {missed} of {len(replay.deficits)} tokens are not the seeded choice"
    return _judged(spec, leaf, evidence, detail)


def verify_file(spec: SamplingTestSpec, replays: Sequence[Replay]) -> Rejected | None:
    """The evidence of all audited rollouts, summed in the order of their leaves, is below the alarm."""
    evidence = accumulate(log_evidence(replay.gaps, replay.deficits, spec.tail) for replay in replays)
    return _judged(spec, WHOLE_FILE, evidence, f"log evidence, summed over {len(replays)} audited leaves")


def honest_tail(x: Floats, tail: Tail) -> Floats:
    """S0 at `x`: the table, its logarithm interpolated linearly, constant beyond its ends, within floor and ceiling."""
    at, probability = np.array(tail, dtype=np.float64).T
    logs = np.log(np.clip(probability, FLOOR, CEILING))
    result: Floats = np.exp(np.interp(x, at, logs))
    return result


def _alternative(x: Floats, tail: Tail, rho: float) -> Floats:
    wider = honest_tail(x / rho, tail)
    return np.maximum(wider, ARBITRARY) if rho == RHOS[-1] else wider


def _log_ratios(missed_T: npt.NDArray[np.bool_], wide_T: Floats, honest_T: Floats) -> Floats:
    return np.where(missed_T, np.log(wide_T) - np.log(honest_T), np.log1p(-wide_T) - np.log1p(-honest_T))


def _judged(spec: SamplingTestSpec, leaf: int, evidence: float, detail: str) -> Rejected | None:
    alarm = math.log(spec.alarm)
    return None if evidence < alarm else Rejected(Check.SAMPLING, leaf, f"{evidence:.4g}", f"{alarm:.4g}", detail)
