"""Attention over a cache against a plain softmax, and rows that leave."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from node.engines.cache import Cache, Prefix, compaction

HEADS, KV_HEADS, SIZE, SCALE = 4, 2, 8, 0.5
LENGTHS = [3, 5]


def plain(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One row: (N, D) queries of the last token over (K, L, D)."""
    keys, values = (x.repeat_interleave(HEADS // KV_HEADS, 0) for x in (keys, values))
    weights = (torch.einsum("nd,nld->nl", query, keys) * SCALE).softmax(-1)
    return torch.einsum("nl,nld->nd", weights, values)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def prefixes() -> tuple[list[Prefix], list[tuple[torch.Tensor, torch.Tensor]]]:
    made, pairs = [], []
    for length in LENGTHS:
        prefix, pair = Prefix(), (random(1, KV_HEADS, length, SIZE), random(1, KV_HEADS, length, SIZE) * 2)
        prefix.attend(0, random(1, HEADS, length, SIZE), *pair, SCALE)
        made.append(prefix)
        pairs.append(pair)
    return made, pairs


@pytest.mark.parametrize("new", [1, 3])
def test_each_row_sees_its_own_prompt_and_what_came_after(new: int) -> None:
    made, pairs = prefixes()
    cache = Cache([(prefix, 0) for prefix in made], LENGTHS, room=4)
    query, key, value = random(2, HEADS, new, SIZE), random(2, KV_HEADS, new, SIZE), random(2, KV_HEADS, new, SIZE) - 1

    out = cache.attend(0, query, key, value, SCALE)

    for row, (keys, values) in enumerate(pairs):
        for q in range(new):
            seen_keys = torch.cat([keys[0], key[row, :, : q + 1]], dim=1)
            seen_values = torch.cat([values[0], value[row, :, : q + 1]], dim=1)
            torch.testing.assert_close(out[row, :, q], plain(query[row, :, q], seen_keys, seen_values))


def test_a_row_that_stays_is_not_changed_by_one_that_leaves() -> None:
    made, _ = prefixes()
    both = Cache([(prefix, 0) for prefix in made], LENGTHS, room=4)
    second = Cache([(made[1], 0)], LENGTHS[1:], room=4)
    for cache, rows in ((both, slice(0, 2)), (second, slice(1, 2))):
        cache.attend(0, random(2, HEADS, 1, SIZE)[rows], *(random(2, KV_HEADS, 1, SIZE)[rows],) * 2, SCALE)
        cache.advance(1)

    both.keep([1])

    query, key = random(1, HEADS, 1, SIZE), random(1, KV_HEADS, 1, SIZE)
    torch.testing.assert_close(both.attend(0, query, key, key, SCALE), second.attend(0, query, key, key, SCALE))


def test_compaction_fills_holes_from_the_end() -> None:
    assert compaction([True, False, True, False, True]) == [0, 4, 2]
    assert compaction([False, False, True]) == [2]
    assert compaction([True, True]) == [0, 1]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.booleans(), max_size=12))
def test_compaction_keeps_exactly_the_living_and_moves_only_from_behind(alive: list[bool]) -> None:
    order = compaction(alive)

    assert sorted(order) == [i for i, living in enumerate(alive) if living]
    assert all(row == place or row >= len(order) for place, row in enumerate(order))
