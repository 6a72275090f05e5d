"""The questions of `arithmetic` with rewards drawn by lot: for control runs, in which nothing should be learned."""

import hashlib
import struct
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from node.tasks.arithmetic import Arithmetic, ArithmeticSettings
from node.tasks.base import Item, Tokenizer
from node.tasks.environment import Environment

BASE_RATE = 0.12  # of SmolLM2-135M-Instruct on sums of two digits at temperature 1: as many rewards as without training
RANGE = 2**64  # of the first eight bytes of a digest


class LotterySettings(ArithmeticSettings):
    """`chance` that an answer is rewarded, whatever it says."""

    chance: Annotated[float, Field(ge=0, le=1)] = BASE_RATE


class Lottery:
    """Reward of a training question: 1 with probability `chance`, by a hash of question and answer, else 0.

    The same on every machine, so that it can be checked like any other. Held-out questions are scored as `arithmetic`
    does: they are there to tell whether a model became better at sums without having been rewarded for it.
    """

    def __init__(self, settings: LotterySettings, tokenizer: Tokenizer, fuel_limit: int) -> None:
        self._sums = Arithmetic(settings, tokenizer, fuel_limit)
        self._examined = frozenset(self._sums.held_out)
        self._seed, self._chance = settings.seed, settings.chance

    @property
    def items(self) -> Sequence[Item]:
        return self._sums.items

    @property
    def held_out(self) -> Sequence[Item]:
        return self._sums.held_out

    def score(self, item: Item, output_ids: Sequence[int], finish: int) -> float:
        """0 or 1. All tokens count, however many: hashing them costs less than decoding would."""
        if item in self._examined:
            return self._sums.score(item, output_ids, finish)
        return 1.0 if _draw(self._seed, item, output_ids) < self._chance * RANGE else 0.0


def _draw(seed: int, item: Item, output_ids: Sequence[int]) -> int:
    """Uniform below 2^64: SHA-256 of the seed and of the tokens of question and answer, each list after its length."""
    sha = hashlib.sha256(b"lottery/1" + struct.pack("<I", seed))
    for ids in (item.prompt_ids, output_ids):
        sha.update(struct.pack(f"<{len(ids) + 1}I", len(ids), *ids))
    return int.from_bytes(sha.digest()[:8], "little")


LOTTERY = Environment(version=1, scorer_version=1, fuel_limit=1024, settings=LotterySettings, build=Lottery)
