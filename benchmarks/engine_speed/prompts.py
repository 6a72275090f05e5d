"""Fresh prompts for every round, as the preset's task makes them: eight rows share one, as in a slot's group."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from node.engines.base import Prompt
from node.rollouts.rollout import Rollout, Sample

SHARED_BY = 8


@dataclass(frozen=True, slots=True)
class Round:
    """One prompt for each row, and the seed of its noise."""

    seed: bytes
    prompts: tuple[Prompt, ...]

    def rollouts(self, samples: Sequence[Sample]) -> list[Rollout]:
        """Of an engine whose groups are of one row."""
        return [
            Rollout(row, 0, prompt, s.output_ids, s.logprobs, s.proofs, s.finish, 0.0)
            for row, (prompt, s) in enumerate(zip(self.prompts, samples, strict=True))
        ]


def draw(name: str, rows: int, pool: Sequence[Prompt]) -> Round:
    """The same round for the same name."""
    seed = hashlib.sha256(f"engine benchmark {name}".encode()).digest()
    drawn = [hashlib.sha256(seed + bytes([row // SHARED_BY])).digest() for row in range(rows)]
    return Round(seed, tuple(pool[int.from_bytes(digest[:8], "big") % len(pool)] for digest in drawn))
