"""Check 6, reward: the reward is what the run's scorer gives the answer."""

import math

import numpy as np

from node.checks.subject import Subject
from node.rollouts.rollout import Rollout
from node.verdicts import Check, Rejected, Undecided


def verify_reward(subject: Subject, leaf: int, rollout: Rollout) -> Rejected | Undecided | None:
    """The float32 in the file equals that of the recomputed score, bit for bit.

    Tokens must have passed `verify_bounds`. A scorer that gives no number says nothing about the rollout.
    """
    score = subject.tasks.score(subject.item_index(rollout.group), rollout.output_ids, rollout.finish)
    if not math.isfinite(score):
        return Undecided(f"the scorer gave {score} for leaf {leaf}")
    if np.float32(score) == np.float32(rollout.reward):
        return None
    return Rejected(Check.REWARD, leaf, f"{rollout.reward:.9g}", f"{score:.9g}", "another reward than the scorer's")
