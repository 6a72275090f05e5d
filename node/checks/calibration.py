"""From many honest replays to a run's thresholds and tail table: what a preset ships and a RunSpec holds.

Thresholds of proofs are the widest honest figure and a margin, never looser than the protocol's caps. The tail table
S0 is fitted to how often the seeded choice was missed, by the gap that the verifier saw. A pair is one way to generate
and one to replay (engines, devices, batch shapes, states of the model); what holds for the worst holds for the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from node.checks.logprobs import logprob_error
from node.checks.sampling import FLOOR, Floats, Tail, log_evidence
from node.checks.sanity import absurdity
from node.checks.toploc import judged, mismatches
from node.errors import ConfigError
from node.rollouts.rollout import Replay, Rollout
from node.runspec import ProofSpec, SamplingTestSpec

MAX_MISMATCHES = 38  # TOPLOC's paper, bf16
CAPS = {"exponent_mismatches": MAX_MISMATCHES, "mantissa_mean": 10.0, "mantissa_median": 8.0}  # same place
# Their honest errors have heavy tails, and grow as training sharpens a model; forging earns nothing.
LOGPROB_MARGIN = 4.0
MARGIN = 2.0  # on the widest honest figure: a thousand chunks here, millions in a run, and one too far costs a stake
STRETCH = 1.25  # of the tail's errors; protocol, "Sampling test"
SUSPECT, ALARM = 1e5, 1e9  # levels of evidence; protocol, "Sampling test"
SCALES = np.geomspace(1e-4, 2.0, 40)  # widths of errors that a fit may mix, in units of a score
ROUNDS = 400  # of expectation-maximisation: the likelihood no longer moves then
_ERFC = np.frompyfunc(math.erfc, 1, 1)
GRID = np.concatenate([[0.0], np.geomspace(1e-4, 8.0, 95)])  # where the table holds S0


@dataclass(frozen=True, slots=True)
class Trial:
    """One honest rollout and a replay of it; `pair` names how each was made."""

    pair: str
    rollout: Rollout
    replay: Replay


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found; `measured` are the figures behind it, by name, and those of held-out trials."""

    proof: ProofSpec
    sampling_test: SamplingTestSpec
    measured: dict[str, float]


def calibrate(trials: Sequence[Trial]) -> Calibration:
    """Thresholds and tail from `trials`; every second trial of a pair is held out of the tail's fit and tests it.

    Raises:
        ConfigError: a replay is absurd, there are too few tokens, an honest chunk is beyond the protocol's caps, or no
            stretch of the tail keeps the mean evidence of every pair's held-out trials at or below 1.
    """
    for trial in trials:
        if (absurd := absurdity(trial.rollout, trial.replay)) is not None:
            raise ConfigError(f"pair {trial.pair}: {absurd}")
    pairs = {pair: [trial for trial in trials if trial.pair == pair] for pair in sorted({t.pair for t in trials})}
    raw = _worst([_fit([trial.replay for trial in of_pair[::2]]) for of_pair in pairs.values()])
    held_out = {pair: [trial.replay for trial in of_pair[1::2]] for pair, of_pair in pairs.items()}
    tail, stretch = _stretched(raw, held_out)
    evidence = {pair: _mean_evidence(replays, tail) for pair, replays in held_out.items()}
    measured = {
        **_figures(trials),
        "tail_stretch": stretch,
        **{f"held_out_mean_evidence[{pair}]": round(mean, 4) for pair, mean in evidence.items()},
    }
    sampling_test = SamplingTestSpec(tail=tail, suspect=SUSPECT, alarm=ALARM)
    return Calibration(_proof(measured), sampling_test, measured)


def _figures(trials: Sequence[Trial]) -> dict[str, float]:
    """Counts and widest figures over all trials."""
    distances = [distance for trial in trials for distance in judged(trial.rollout, trial.replay)]
    if not distances:
        raise ConfigError("no honest chunk is long enough to be judged: calibrate with longer outputs")
    errors = [logprob_error(trial.rollout, trial.replay) for trial in trials]
    deficits = np.concatenate([trial.replay.deficits for trial in trials])
    return {
        "rollouts": len(trials),
        "tokens": int(deficits.size),
        "tokens_missed": int(np.count_nonzero(deficits)),
        "largest_deficit": round(float(deficits.max()), 6),
        "chunks": len(distances),
        "exponent_mismatches_mean": round(float(np.mean([mismatches(d) for d in distances])), 4),
        "exponent_mismatches_max": max(mismatches(d) for d in distances),
        "mantissa_mean_mean": round(float(np.mean([d.mantissa_mean for d in distances])), 4),
        "mantissa_mean_max": round(max(d.mantissa_mean for d in distances), 4),
        "mantissa_median_max": max(d.mantissa_median for d in distances),
        "logprob_mean_error_max": round(max(error.mean for error in errors), 6),
        "logprob_max_error_max": round(max(error.largest for error in errors), 6),
    }


def _proof(measured: dict[str, float]) -> ProofSpec:
    """`MARGIN` times the widest figures, and a little more where a figure is a small count or small altogether."""
    widest = {name: measured[f"{name}_max"] for name in CAPS}
    beyond = {name: value for name, value in widest.items() if value > CAPS[name]}
    if beyond:
        raise ConfigError(f"honest chunks are beyond the protocol's caps {CAPS}: {beyond}")
    return ProofSpec(
        chunk=32,
        top_k=128,
        exponent_mismatches=min(math.ceil(MARGIN * widest["exponent_mismatches"]) + 1, MAX_MISMATCHES),
        mantissa_mean=min(round(MARGIN * widest["mantissa_mean"] + 0.05, 2), CAPS["mantissa_mean"]),
        mantissa_median=min(math.ceil(MARGIN * widest["mantissa_median"]) + 1.0, CAPS["mantissa_median"]),
        logprob_mean_error=round(LOGPROB_MARGIN * measured["logprob_mean_error_max"] + 0.005, 4),
        logprob_max_error=round(LOGPROB_MARGIN * measured["logprob_max_error_max"] + 0.05, 4),
    )


# --- The tail


def _fit(replays: Sequence[Replay]) -> Floats:
    """P(error > x) at `GRID`: the likeliest mixture of normal errors of different widths, so its tails may be heavy.

    A token matched at gap g says that its error was not above g; one missed at deficit d, that it was above d. The
    likelihood has one summit in the weights, which expectation-maximisation climbs.
    """
    gaps = np.concatenate([replay.gaps for replay in replays]).astype(np.float64)
    deficits = np.concatenate([replay.deficits for replay in replays]).astype(np.float64)
    missed = deficits > 0
    above = _normal(np.where(missed, deficits, gaps)[:, None], SCALES)
    likelihood = np.where(missed[:, None], above, 1 - above) + 1e-300
    weights = np.full(SCALES.size, 1 / SCALES.size)
    for _ in range(ROUNDS):
        share = likelihood * weights
        weights = (share / share.sum(axis=1, keepdims=True)).mean(axis=0)
    fitted: Floats = _normal(GRID[:, None], SCALES) @ weights
    return fitted


def _normal(x: Floats, sigma: Floats) -> Floats:
    """P(X > x) of a normal variable."""
    return 0.5 * np.asarray(_ERFC(x / (sigma * math.sqrt(2))), dtype=np.float64)


def _worst(tails: Sequence[Floats]) -> Floats:
    result: Floats = np.max(np.stack(tails), axis=0)
    return result


def _stretched(raw: Floats, held_out: dict[str, list[Replay]]) -> tuple[list[tuple[float, float]], float]:
    """The table with its errors stretched and its floor, and by how much: no less than `STRETCH`, as much as it takes
    for the mean evidence of every pair to be at most 1."""
    for stretch in STRETCH * np.geomspace(1, 4, 13):
        tail = _table(GRID * stretch, raw)
        if all(_mean_evidence(replays, tail) <= 1 for replays in held_out.values()):
            return tail, round(float(stretch), 4)
    raise ConfigError("honest evidence stays above 1 on average: more trials are needed, or engines differ too much")


def _table(x: Floats, probability: Floats) -> list[tuple[float, float]]:
    """With six digits, and one entry at the floor: beyond it the check needs none."""
    last = int(np.argmax(probability <= FLOOR)) or len(x) - 1
    rows = zip(x[: last + 1].tolist(), probability[: last + 1].tolist(), strict=True)
    return [(float(f"{at:.6g}"), float(f"{max(p, FLOOR):.6g}")) for at, p in rows]


def _mean_evidence(replays: Sequence[Replay], tail: Tail) -> float:
    return float(np.mean(np.exp([log_evidence(replay.gaps, replay.deficits, tail) for replay in replays])))
