"""Attention over keys and values that the engine keeps itself: no copy per step, rows that leave cost one row.

transformers' models hand queries, keys and values to an attention function chosen by name; ours keeps them in `Cache`
passed through the forward call. A prompt is run once, whatever the number of rows that go on from it.

Letters: B rows, N query heads, K key-value heads, G = N / K, Q new tokens, L columns of the cache, D head size,
P prompt tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention

ATTENTION = "intellect_cache"  # the name under which transformers finds `attention`

Pair = tuple[torch.Tensor, torch.Tensor]  # keys and values


class KeyValues(Protocol):
    """What a forward pass reads and writes in place of a cache."""

    def attend(
        self, layer: int, query_BNQD: torch.Tensor, key_BKQD: torch.Tensor, value_BKQD: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Attention of the new tokens over all before them, themselves included: (B, N, Q, D)."""


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,
    *,
    scaling: float,
    cache: KeyValues,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface; `cache` comes from the caller of the model's forward."""
    layer = module.layer_idx
    assert isinstance(layer, int)
    out_BNQD = cache.attend(layer, query, key, value, scaling)
    return out_BNQD.transpose(1, 2).contiguous(), None


class Prefix:
    """Keys and values of prompts of one length, as their forward pass leaves them."""

    def __init__(self) -> None:
        self.layers: list[Pair] = []

    def attend(
        self, layer: int, query_BNQD: torch.Tensor, key_BKQD: torch.Tensor, value_BKQD: torch.Tensor, scale: float
    ) -> torch.Tensor:
        assert layer == len(self.layers)
        self.layers.append((key_BKQD, value_BKQD))
        return scaled_dot_product_attention(
            query_BNQD, key_BKQD, value_BKQD, is_causal=True, scale=scale, enable_gqa=True
        )


class Cache:
    """Room for B rows: each starts from a prompt in columns [0, p), new tokens of all share columns from P = max p on.

    `rows` names for each row its prefix and the place in it. Columns between p and P are never looked at.
    """

    def __init__(self, rows: Sequence[tuple[Prefix, int]], lengths: Sequence[int], room: int) -> None:
        self.filled = max(lengths)
        self._layers = [_expanded(rows, lengths, layer, self.filled + room) for layer in range(len(rows[0][0].layers))]
        self._mask_BL = _open_columns(lengths, self.filled + room, self._layers[0][0].device)
        self._masks: dict[int, torch.Tensor | None] = {}

    def attend(
        self, layer: int, query_BNQD: torch.Tensor, key_BKQD: torch.Tensor, value_BKQD: torch.Tensor, scale: float
    ) -> torch.Tensor:
        keys_BKLD, values_BKLD = self._layers[layer]
        new = key_BKQD.shape[2]
        end = self.filled + new
        keys_BKLD[:, :, self.filled : end] = key_BKQD
        values_BKLD[:, :, self.filled : end] = value_BKQD
        keys_BKLD, values_BKLD = keys_BKLD[:, :, :end], values_BKLD[:, :, :end]
        mask = self._mask(new, query_BNQD.dtype)
        if new > 1:
            return scaled_dot_product_attention(
                query_BNQD, keys_BKLD, values_BKLD, attn_mask=mask, scale=scale, enable_gqa=True
            )
        # One new token sees everything before it, so the G query heads of a key head can stand as G queries: no copies.
        rows, _, _, size = query_BNQD.shape
        packed_BKGD = query_BNQD.reshape(rows, keys_BKLD.shape[1], -1, size)
        out = scaled_dot_product_attention(packed_BKGD, keys_BKLD, values_BKLD, attn_mask=mask, scale=scale)
        return out.reshape(rows, -1, 1, size)

    def advance(self, new: int) -> None:
        """To be called once all layers have seen `new` tokens."""
        self.filled += new
        self._masks.clear()

    def keep(self, order: Sequence[int]) -> None:
        """Row i becomes what row `order[i]` was; the others are dropped. See `compaction`."""
        moved = [(place, row) for place, row in enumerate(order) if place != row]
        for tensors in (*self._layers, (self._mask_BL,)):
            for tensor in tensors:
                for place, row in moved:
                    tensor[place] = tensor[row]
        self._layers = [(keys[: len(order)], values[: len(order)]) for keys, values in self._layers]
        self._mask_BL = self._mask_BL[: len(order)]
        self._masks.clear()

    def _mask(self, new: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Additive mask (B, 1, new, filled + new), the same for all layers; None where nothing is hidden."""
        if new not in self._masks:
            end = self.filled + new
            open_BQL = self._mask_BL[:, None, :end].expand(-1, new, -1)
            if new > 1:
                open_BQL = open_BQL & torch.ones(new, end, dtype=torch.bool, device=open_BQL.device).tril(self.filled)
            additive = torch.zeros_like(open_BQL, dtype=torch.float32 if open_BQL.device.type == "cpu" else dtype)
            additive.masked_fill_(~open_BQL, float("-inf"))
            self._masks[new] = None if bool(open_BQL.all()) else additive[:, None]
        return self._masks[new]


def compaction(alive: Sequence[bool]) -> list[int]:
    """An order for `Cache.keep` that moves as few rows as possible: rows from the end fill the holes before them."""
    kept = sum(alive)
    fillers = [row for row in range(kept, len(alive)) if alive[row]]
    return [row if alive[row] else fillers.pop() for row in range(kept)]


def _expanded(rows: Sequence[tuple[Prefix, int]], lengths: Sequence[int], layer: int, size: int) -> Pair:
    pair = []
    for part in (0, 1):
        sample = rows[0][0].layers[layer][part]
        room = sample.new_empty(len(rows), sample.shape[1], size, sample.shape[3])
        room[:, :, min(lengths) : max(lengths)] = 0  # hidden columns must still hold finite numbers
        for row, ((prefix, place), length) in enumerate(zip(rows, lengths, strict=True)):
            room[row, :, :length] = prefix.layers[layer][part][place]
        pair.append(room)
    return pair[0], pair[1]


def _open_columns(lengths: Sequence[int], size: int, device: torch.device) -> torch.Tensor:
    column_1L = torch.arange(size, device=device)[None]
    length_B1 = torch.tensor(lengths, device=device)[:, None]
    return (column_1L < length_B1) | (column_1L >= max(lengths))
