"""Whether the networks learned: the tests, chosen before any result was looked at.

Rewards: mean reward of the groups of the last versions against that of the first, one-sided permutation test over
group means (the unit of drawing: rollouts of a group share their prompt). Held out: accuracy of the last version
against that of version 0, standard errors clustered by prompt and added as if independent, which is too wide here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from .results import Result
from .series import CONTROL, LEARNING, Series

PERMUTATIONS = 100_000
PERMUTATION_SEED = 0
P_BELOW = 0.001
TIMES = 2.0  # held-out accuracy at the end, over that of version 0
CONTROL_Z = 2.326  # one-sided 1%: above it, the controls together have risen


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that must hold, in words, with what was measured."""

    claim: str
    measured: str
    holds: bool


def ends(found: Result, count: int) -> tuple[list[float], list[float]]:
    """Group means of the first and of the last `count` versions that have any."""
    versions = [groups for groups in found.groups if groups]
    if len(versions) < 2 * count:
        raise ValueError(f"{len(versions)} versions with rollouts: first and last {count} would overlap")
    first, last = versions[:count], versions[-count:]
    return [mean for groups in first for mean in groups], [mean for groups in last for mean in groups]


def permutation_p(first: Sequence[float], last: Sequence[float]) -> float:
    """One-sided p of mean(last) > mean(first) under exchangeability of all values, never below 1 / (permutations + 1).

    Source: Phipson and Smyth 2010, "Permutation p-values should never be zero".
    """
    values = np.array([*first, *last])
    rng = np.random.default_rng(PERMUTATION_SEED)
    observed = float(np.mean(last) - np.mean(first))
    reached = 0
    for _ in range(PERMUTATIONS // 1000):
        shuffled = rng.permuted(np.tile(values, (1000, 1)), axis=1)
        differences = shuffled[:, len(first) :].mean(axis=1) - shuffled[:, : len(first)].mean(axis=1)
        reached += int((differences >= observed - 1e-12).sum())
    return (reached + 1) / (PERMUTATIONS + 1)


def figures(series: Series, found: Result) -> dict[str, Any]:
    """What is reported of one network."""
    first, last = ends(found, series.ends)
    row: dict[str, Any] = {
        "arm": found.arm,
        "seed": found.seed,
        "reward_first": round(float(np.mean(first)), 4),
        "reward_last": round(float(np.mean(last)), 4),
        "p": permutation_p(first, last),
        "rollouts_rejected": found.rejected,
        "rollouts_expired": found.expired,
        "failures": found.failures,
        "seconds": found.seconds,
    }
    if found.held_out:
        before, after = found.held_out[0], found.held_out[series.steps]
        row |= {
            "accuracy_first": before.mean,
            "accuracy_first_se": before.standard_error,
            "accuracy_last": after.mean,
            "accuracy_last_se": after.standard_error,
            "ratio": round(after.mean / before.mean, 3) if before.mean else None,
        }
    return row


def overview(series: Series, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The networks in one: rewards averaged over the seeds that learn, the greatest p of them, accuracy by seed."""
    learning = [row for row in rows if row["arm"] == LEARNING]
    control = [row for row in rows if row["arm"] == CONTROL]
    found: dict[str, Any] = {
        "steps": series.steps,
        "first_reward": _mean(learning, "reward_first"),
        "last_reward": _mean(learning, "reward_last"),
        "p_value": max((row["p"] for row in learning), default=None),
    }
    if series.held_out_claim:
        found |= {
            "held_out_before": [row["accuracy_first"] for row in learning],
            "held_out_after": [row["accuracy_last"] for row in learning],
            "control_before": [row["accuracy_first"] for row in control],
            "control_after": [row["accuracy_last"] for row in control],
        }
    return found


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    return round(float(np.mean([row[name] for row in rows])), 4) if rows else None


def claims(series: Series, rows: Sequence[dict[str, Any]]) -> list[Claim]:
    """Everything that must hold of `rows` (`figures` of every network of the series)."""
    learning = [row for row in rows if row["arm"] == LEARNING]
    control = [row for row in rows if row["arm"] == CONTROL]
    made = [_no_rejection(rows), *(_rewards_rise(row, series.ends) for row in learning)]
    if series.held_out_claim:
        made += [_doubles(row) for row in learning]
    if control:
        made += [_control_stays(control)]
    return made


def _no_rejection(rows: Sequence[dict[str, Any]]) -> Claim:
    rejected = sum(row["rollouts_rejected"] for row in rows)
    return Claim("no rollout of an honest worker is rejected", f"{rejected} rejected", rejected == 0)


def _rewards_rise(row: dict[str, Any], count: int) -> Claim:
    return Claim(
        f"seed {row['seed']}: rewards of the last {count} versions are above those of the first {count}, "
        f"one-sided permutation test over group means, p < {P_BELOW}",
        f"{row['reward_first']:.3f} to {row['reward_last']:.3f}, p = {row['p']:.2g}",
        row["p"] < P_BELOW,
    )


def _doubles(row: dict[str, Any]) -> Claim:
    return Claim(
        f"seed {row['seed']}: held-out accuracy at least doubles, by more than 3 standard errors",
        f"{row['accuracy_first']:.3f} to {row['accuracy_last']:.3f}, {rise_z([row]):.1f} standard errors",
        row["accuracy_last"] >= TIMES * row["accuracy_first"] and rise_z([row]) > 3,
    )


def _control_stays(control: Sequence[dict[str, Any]]) -> Claim:
    z = rise_z(control)
    return Claim(
        f"controls, rewarded by lot: held-out accuracy, all seeds together, does not rise (z < {CONTROL_Z})",
        ", ".join(f"{row['accuracy_first']:.3f} to {row['accuracy_last']:.3f}" for row in control) + f", z = {z:.1f}",
        z < CONTROL_Z,
    )


def rise_z(rows: Sequence[dict[str, Any]]) -> float:
    """Sum of the rises in accuracy over its standard error."""
    rise = sum(row["accuracy_last"] - row["accuracy_first"] for row in rows)
    variance = sum(row["accuracy_last_se"] ** 2 + row["accuracy_first_se"] ** 2 for row in rows)
    return float(rise / sqrt(variance)) if variance else 0.0
