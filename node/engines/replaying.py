"""Replay of finished rollouts by prefill: what the model says of each emitted token, in one pass over its output.

Letters: B rollouts, Q fed tokens, T output tokens, N rows of all rollouts together, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from hashing.sampling import key_of, places
from node.engines.base import Policy, Prompt
from node.engines.forward import Forward, Prefilled, bfloat16_rows, continued
from node.engines.scoring import TokenScores, weigh_states
from node.rollouts.rollout import Replay, Rollout

CACHED_TOKENS = 1 << 12  # of a batch of rollouts, prompts included; more falls out of a CPU's caches


def batches(rollouts: Sequence[Rollout]) -> Iterator[list[int]]:
    """Indices of `rollouts` in batches of bounded size: rollouts of one prompt together, then by length."""
    first: dict[Prompt, int] = {}
    for index, rollout in enumerate(rollouts):
        first.setdefault(rollout.prompt_ids, index)
    order = sorted(range(len(rollouts)), key=lambda i: (first[rollouts[i].prompt_ids], len(rollouts[i].output_ids)))
    batch: list[int] = []
    longest = 0
    for index in order:
        length = len(rollouts[index].prompt_ids) + len(rollouts[index].output_ids)
        if batch and (len(batch) + 1) * max(longest, length) > CACHED_TOKENS:
            yield batch
            batch, longest = [], 0
        batch.append(index)
        longest = max(longest, length)
    if batch:
        yield batch


def replay_batch(
    forward: Forward, policy: Policy, seed: bytes, rollouts: Sequence[Rollout], starts: Sequence[Prefilled]
) -> list[Replay]:
    """A `Replay` of each of `rollouts`, whose prompts were run as `starts`."""
    parts_TH = _hidden(forward, rollouts, starts)
    hidden_NH = torch.cat(parts_TH)
    evidence = _evidence(forward, policy, seed, rollouts, hidden_NH)
    replays, at = [], 0
    for part_TH in parts_TH:
        logprobs_T, gaps_T, deficits_T = (values[at : at + len(part_TH)].cpu().numpy() for values in evidence)
        replays.append(Replay(bfloat16_rows(part_TH).numpy().view(np.uint16), logprobs_T, gaps_T, deficits_T))
        at += len(part_TH)
    return replays


def _hidden(forward: Forward, rollouts: Sequence[Rollout], starts: Sequence[Prefilled]) -> list[torch.Tensor]:
    """States (T, H) that predicted each output token: the prompt's last, then those of all output tokens but the last.

    Shorter outputs are padded on the right, where nothing real looks.
    """
    longest = max(len(rollout.output_ids) for rollout in rollouts) - 1
    firsts = [start.last[None] for start in starts]
    if longest == 0:
        return firsts
    fed = [rollout.output_ids[:-1] for rollout in rollouts]
    ids_BQ = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in fed], device=forward.device)
    length_B1 = torch.tensor([[start.length] for start in starts], device=forward.device)
    positions_BQ = length_B1 + torch.arange(longest, device=forward.device)
    hidden_BQH = forward.hidden(ids_BQ, positions_BQ, continued(starts, longest))
    return [torch.cat([first, hidden_BQH[i, : len(fed[i])]]) for i, first in enumerate(firsts)]


def _evidence(
    forward: Forward, policy: Policy, seed: bytes, rollouts: Sequence[Rollout], hidden_NH: torch.Tensor
) -> TokenScores:
    tokens = [token for rollout in rollouts for token in rollout.output_ids]
    rows = [r.group * policy.group_size + r.index for r in rollouts for _ in r.output_ids]
    positions = [t for rollout in rollouts for t in range(len(rollout.output_ids))]
    places_N4 = places([key_of(seed)] * len(tokens), rows, positions)
    return weigh_states(hidden_NH, forward.logits, places_N4, tokens, policy.temperature)
