"""Forward passes of a loaded model: prompts once each, then tokens that go on from them; hidden states and logits.

Letters: B rows, Q new tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from node.engines.base import Prompt
from node.engines.cache import Cache, KeyValues, Prefix


@dataclass(frozen=True, slots=True, eq=False)
class Prefilled:
    """A prompt that was run: where its keys and values are, and the `last` hidden state (H,): it predicts token 0."""

    prefix: Prefix
    place: int
    length: int
    last: torch.Tensor


class Forward:
    """A model as two functions, `hidden` and `logits`. Positions are the true ones, whatever the padding."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self._decoder = model.get_decoder()
        self._output = model.get_output_embeddings()
        self.device = device
        self.vocabulary = int(self._output.weight.shape[0])
        self.positions = int(model.config.max_position_embeddings)

    def hidden(self, ids_BQ: torch.Tensor, positions_BQ: torch.Tensor, cache: KeyValues) -> torch.Tensor:
        """What enters the output layer, (B, Q, H) bfloat16."""
        result = self._decoder(
            input_ids=ids_BQ, position_ids=positions_BQ, use_cache=False, return_dict=True, cache=cache
        )
        hidden_BQH = result.last_hidden_state
        assert isinstance(hidden_BQH, torch.Tensor)
        return hidden_BQH

    def logits(self, hidden_BH: torch.Tensor) -> torch.Tensor:
        """(B, V), in the type of the output layer."""
        logits_BV = self._output(hidden_BH)
        assert isinstance(logits_BV, torch.Tensor)
        return logits_BV

    def prefill(self, prompts: Sequence[Prompt]) -> dict[Prompt, Prefilled]:
        """Runs each distinct prompt once; those of one length together, so that nothing is padded."""
        by_length: dict[int, list[Prompt]] = {}
        for prompt in dict.fromkeys(prompts):
            by_length.setdefault(len(prompt), []).append(prompt)
        return {prompt: done for alike in by_length.values() for prompt, done in self._prefill_alike(alike)}

    def _prefill_alike(self, prompts: list[Prompt]) -> list[tuple[Prompt, Prefilled]]:
        ids_BQ = torch.tensor(prompts, device=self.device)
        positions_BQ = torch.arange(ids_BQ.shape[1], device=self.device).expand_as(ids_BQ)
        prefix = Prefix()
        last_BH = self.hidden(ids_BQ, positions_BQ, prefix)[:, -1]
        return [(p, Prefilled(prefix, i, len(p), last_BH[i])) for i, p in enumerate(prompts)]


def continued(starts: Sequence[Prefilled], room: int) -> Cache:
    """A cache for one row per start, with room for `room` further tokens."""
    return Cache([(start.prefix, start.place) for start in starts], [start.length for start in starts], room)


def bfloat16_rows(hidden_BH: torch.Tensor) -> torch.Tensor:
    """The bit patterns of bfloat16 hidden states on the CPU, as int16 for want of a better type."""
    assert hidden_BH.dtype == torch.bfloat16
    return hidden_BH.contiguous().view(torch.int16).cpu()
