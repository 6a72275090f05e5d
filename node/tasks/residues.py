"""A task with a dense reward that a tiny random model learns in a minute: emit ids of one residue class modulo 4."""

import hashlib
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from node.tasks.base import Item, Tokenizer
from node.tasks.environment import Environment, TaskSettings

BEGIN = 0  # first token of every prompt
CLASS_BASE = 2  # the second is this plus the class; 1 is left to EOS
FIRST_FREE = 16  # ids from here on fill prompts and earn reward
CLASSES = 4
FILLERS = 4


class ResiduesSettings(TaskSettings):
    """`vocabulary` bounds the random ids of prompts; it must not be above the model's.

    `classes`: how many of the residue classes are asked for. With one there is nothing to read in the prompt.
    """

    classes: Annotated[int, Field(ge=1, le=CLASSES)] = CLASSES
    vocabulary: Annotated[int, Field(ge=2 * FIRST_FREE, le=2**20)] = 256
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    train: Annotated[int, Field(ge=1, le=2**16)] = 512
    held_out: Annotated[int, Field(ge=0, le=2**16)] = 64


class Residues:
    """Prompts `[0, 2 + c, four random ids >= 16]`, the class c in turn from 0 on; the held-out ones follow the others.

    Reward: the share of emitted tokens with id >= 16 and id mod 4 = c; a quarter, less the 16 low ids, by chance.
    """

    def __init__(self, settings: ResiduesSettings, tokenizer: Tokenizer, fuel_limit: int) -> None:
        count = settings.train + settings.held_out
        items = [_item(settings, index) for index in range(count)]
        self._items = tuple(items[: settings.train])
        self._held_out = tuple(items[settings.train :])
        self._fuel_limit = fuel_limit

    @property
    def items(self) -> Sequence[Item]:
        return self._items

    @property
    def held_out(self) -> Sequence[Item]:
        return self._held_out

    def score(self, item: Item, output_ids: Sequence[int], finish: int) -> float:
        """Between 0 and 1, over the first `fuel_limit` tokens; how the answer ended does not matter."""
        looked_at = output_ids[: self._fuel_limit]
        wanted = int(item.answer)
        hits = sum(1 for token in looked_at if token >= FIRST_FREE and token % CLASSES == wanted)
        return hits / len(looked_at) if looked_at else 0.0


def _item(settings: ResiduesSettings, index: int) -> Item:
    """Counter-based: SHA-256 of seed and index gives eight words; no item depends on another."""
    words = hashlib.sha256(f"residues/1 {settings.seed} {index}".encode()).digest()
    ids = tuple(
        FIRST_FREE + int.from_bytes(words[8 * k : 8 * k + 8], "little") % (settings.vocabulary - FIRST_FREE)
        for k in range(FILLERS)
    )
    wanted = index % settings.classes
    return Item((BEGIN, CLASS_BASE + wanted, *ids), str(wanted))


RESIDUES = Environment(version=1, scorer_version=1, fuel_limit=1024, settings=ResiduesSettings, build=Residues)
