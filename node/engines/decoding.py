"""Generation of one batch of rows: a token of every row a step, rows that ended leave.

Letters: B rows, T output tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from hashing.proof import build_proofs
from hashing.sampling import Key, key_of, places
from node.engines.base import Policy
from node.engines.cache import compaction
from node.engines.forward import Forward, Prefilled, bfloat16_rows, continued
from node.engines.scoring import choose
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH, Sample


@dataclass(slots=True)
class Row:
    """A row of the slot while it is generated. `states` are the hidden states (H,) that predicted each token."""

    number: int
    start: Prefilled
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    states: list[npt.NDArray[np.uint16]] = field(default_factory=list)

    def ended(self, policy: Policy) -> bool:
        return self.ids[-1] in policy.eos_ids or len(self.ids) == policy.max_output_tokens

    def sample(self, policy: Policy) -> Sample:
        """The finished row, with its proofs."""
        finish = FINISH_EOS if self.ids[-1] in policy.eos_ids else FINISH_LENGTH
        proofs = build_proofs(np.stack(self.states))
        return Sample(tuple(self.ids), tuple(self.logprobs), proofs, finish)


def decode(
    forward: Forward, policy: Policy, seed: bytes, rows: Sequence[Row], advanced: Callable[[int, int], None]
) -> dict[int, Sample]:
    """Samples of `rows` by their numbers. `advanced` hears of each step's tokens, and of those that ended rows save."""
    key = key_of(seed)
    samples: dict[int, Sample] = {}
    active = list(rows)
    cache = continued([row.start for row in active], policy.max_output_tokens - 1)
    hidden_BH = torch.stack([row.start.last for row in active])
    for t in range(policy.max_output_tokens):
        ids_B = _step(forward, policy, key, active, hidden_BH, t)
        ended = [row for row in active if row.ended(policy)]
        samples |= {row.number: row.sample(policy) for row in ended}
        advanced(len(active), len(ended) * (policy.max_output_tokens - t - 1))
        if len(ended) == len(active):
            break
        if ended:
            order = compaction([row.number not in samples for row in active])
            cache.keep(order)
            active = [active[i] for i in order]
            ids_B = ids_B[torch.tensor(order, device=ids_B.device)]
        positions_B1 = torch.tensor([[row.start.length + t] for row in active], device=forward.device)
        hidden_BH = forward.hidden(ids_B[:, None], positions_B1, cache)[:, 0]
        cache.advance(1)
    return samples


def _step(
    forward: Forward, policy: Policy, key: Key, active: Sequence[Row], hidden_BH: torch.Tensor, t: int
) -> torch.Tensor:
    """Chooses token t of every active row and notes it there; ids (B,)."""
    places_B4 = places([key] * len(active), [row.number for row in active], [t] * len(active))
    choice = choose(forward.logits(hidden_BH), places_B4, policy.temperature)
    states_BH = bfloat16_rows(hidden_BH).numpy().view(np.uint16)
    tokens, logprobs = choice.tokens.tolist(), choice.logprobs.tolist()
    for row, token, logprob, state_H in zip(active, tokens, logprobs, states_BH, strict=True):
        row.ids.append(token)
        row.logprobs.append(logprob)
        row.states.append(state_H.copy())  # of its own: the step's memory goes, however long a row lives
    return choice.tokens
