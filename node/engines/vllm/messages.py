"""What the node and its engine process tell each other, pickled over a socket pair that nobody else holds."""

from dataclasses import dataclass
from typing import Any

from node.engines.base import Policy, Prompt
from node.engines.changes import Change

START = 0  # the number under which starting is answered


@dataclass(frozen=True, slots=True)
class Settings:
    """With what an engine process starts.

    max_sequence: prompt and output together; None for what the model has. batch_rows: sequences at once. cache_bytes:
    memory of keys and values on a CPU; on a GPU, vLLM takes what is free. ranks: GPUs that share the model.
    """

    folder: str
    policy: Policy
    max_sequence: int | None
    batch_rows: int
    batch_tokens: int | None
    cache_bytes: int | None
    ranks: int
    prefix_caching: bool


@dataclass(frozen=True, slots=True)
class Generate:
    """`rows`: (row of the slot, prompt) each."""

    seed: bytes
    rows: tuple[tuple[int, Prompt], ...]


@dataclass(frozen=True, slots=True)
class Prefill:
    """`rows`: (row of the slot, prompt, output) each."""

    seed: bytes
    rows: tuple[tuple[int, Prompt, Prompt], ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """Nobody waits for the answer to order `number` any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Swap:
    folder: str


@dataclass(frozen=True, slots=True)
class Patch:
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class WeightsDigest:
    pass


@dataclass(frozen=True, slots=True)
class Ready:
    """What a started process runs: its name for evidence and logs; tokens that exist; positions of a sequence."""

    name: str
    vocabulary: int
    positions: int


Order = Generate | Prefill | Abort | Swap | Patch | WeightsDigest


@dataclass(frozen=True, slots=True)
class Asked:
    """An order, numbered so that its answers find who asked."""

    number: int
    order: Order


@dataclass(frozen=True, slots=True)
class Progressed:
    number: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Done:
    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The last answer of a process: what it holds may be a mix, or its batch is lost."""

    reason: str


Answer = Progressed | Done | Failed
