"""Prompts that rollouts have in common are computed once in a replay too.

vLLM takes the keys and values of what a sequence has in common with an earlier one from its cache. What is taken is not
computed, so its hidden states are not seen: of an output that is replayed nothing may be taken, whoever made the same
one before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Cached = tuple[Any, int, int]  # blocks, the tokens in them, and what only models with sliding windows have


def share_prompts(manager: Any) -> None:
    """Makes `manager`, vLLM's `KVCacheManager`, take nothing but blocks of the prompt for requests of a replay."""
    manager.get_computed_blocks = _prompts_only(manager, manager.get_computed_blocks)


def _prompts_only(manager: Any, find: Callable[[Any], Cached]) -> Callable[[Any], Cached]:
    def found(request: Any) -> Cached:
        output = request.sampling_params.extra_args.get("output")
        if output is None or not manager.prefix_cache_lookup_enabled(request):
            return find(request)
        prompt = request.num_prompt_tokens - (len(output) - 1)
        most = prompt - 1  # the state of the prompt's last token predicts the output's first
        blocks, tokens, _ = manager.coordinator.find_longest_cache_hit(request.block_hashes, most)
        return manager.create_kv_cache_blocks(blocks), tokens, 0

    return found
