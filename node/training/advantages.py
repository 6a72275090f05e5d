"""How much better than its group each rollout was."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

STD_FLOOR = 1e-6  # INTELLECT-2's GRPO: A = (r - mean) / (std + 1e-6)


def group_advantages(rewards: Sequence[float], by_std: bool = False) -> npt.NDArray[np.float64]:
    """reward - mean of the group, shape (rollouts,); with `by_std` divided by its unbiased deviation + 1e-6.

    Rewards that are all equal give exact zeros: rounding in the mean would otherwise leave values that `by_std`
    blows up to the size of real advantages.

    Source: GRPO, arXiv 2402.03300; without the division, arXiv 2503.20783.
    """
    values = np.asarray(rewards, dtype=np.float64)
    if not is_informative(rewards):
        return np.zeros_like(values)
    scale = values.std(ddof=1) + STD_FLOOR if by_std else 1.0
    return np.asarray((values - values.mean()) / scale)


def is_informative(rewards: Sequence[float]) -> bool:
    """Whether the rewards differ, so that the group carries a gradient.

    A group that does not is dropped from the loss and from its denominator: the mean is over the tokens of
    informative groups only, or their gradient would shrink as the others grow in number.
    """
    return min(rewards) != max(rewards)
