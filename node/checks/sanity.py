"""Whether a replay can be believed at all. A broken engine must never convict anybody.

Everything refused here is impossible whatever the rollout says, so it speaks of the engine that replayed it.
"""

import numpy as np

from hashing.encoding import TOP_K
from hashing.proof import EXPONENT
from node.rollouts.rollout import Replay, Rollout

ROUNDING = 1e-3  # nats and score units by which float32 arithmetic can miss an exact bound


def absurdity(rollout: Rollout, replay: Replay) -> str | None:
    """What is impossible about `replay` of `rollout`, or None."""
    tokens = len(rollout.output_ids)
    states = replay.hidden_bits
    if states.ndim != 2 or len(states) != tokens or states.shape[1] < TOP_K:
        return f"hidden states of shape {states.shape} for {tokens} tokens"
    if bool(((states & EXPONENT) == EXPONENT).any()):
        return "hidden states hold NaN or infinity"
    rows = {"logprobs": replay.logprobs, "gaps": replay.gaps, "deficits": replay.deficits}
    for name, values in rows.items():
        if values.shape != (tokens,) or not bool(np.isfinite(values).all()):
            return f"{name} are not {tokens} finite numbers"
    if bool((replay.logprobs > ROUNDING).any()):
        return "a log-probability is above 0"
    if bool((replay.gaps < 0).any() or (replay.deficits < 0).any()):
        return "a score lies above the best one"
    if bool(((replay.deficits > 0) & (replay.deficits < replay.gaps - ROUNDING)).any()):
        return "a token that is not the best scores above the second best"
    return None
