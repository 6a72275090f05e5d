"""The `Engine` protocol: generate a slot's rollouts, replay one by prefill, swap weights in place."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from node.engines.changes import Change
from node.progress import OnProgress
from node.rollouts.rollout import Replay, Rollout, Sample

Prompt = tuple[int, ...]  # token ids


@dataclass(frozen=True, slots=True)
class Policy:
    """How a run samples; all of it comes from its RunSpec. Prompts may be as long as the model permits if None."""

    temperature: float
    max_output_tokens: int
    eos_ids: frozenset[int]
    group_size: int
    max_prompt_tokens: int | None = None

    @property
    def max_sequence(self) -> int | None:
        """Tokens of a prompt and its output together, where that is known."""
        return None if self.max_prompt_tokens is None else self.max_prompt_tokens + self.max_output_tokens


class Engine(Protocol):
    """Blocking: roles call it in a thread. Raises `EngineError`, never half a result.

    One call at a time, but for slots_at_once: how many calls of `generate` may run side by side, each in a thread of
    its own, to keep the engine busy while the last rows of a slot are few.
    """

    slots_at_once: int

    @property
    def name(self) -> str:
        """Library, version and device, for evidence and logs."""

    def load(self, folder: Path) -> None:
        """Swaps in the weights of `folder` (safetensors beside config.json), in place where something is loaded."""

    def patch(self, folder: Path, changes: Sequence[Change]) -> None:
        """Makes what is loaded the weights of `folder`, in place; `changes` are what those have and it has not.

        Raises: EngineError: what was loaded still is, unchanged, or nothing is loaded any more.
        """

    def weights_digest(self) -> str:
        """SHA-256 in hex over names, shapes and bytes of the weights that are loaded, read from where they are computed
        with. Raises: EngineError."""

    def generate(self, seed: bytes, prompts: Sequence[Prompt], progress: OnProgress) -> list[Sample]:
        """`group_size` samples of each prompt; sample k is row k of the slot, its noise that of (seed, k, t).

        `progress` hears output tokens, and how many they can still become in all.

        Raises: EngineError.
        """

    def replay(self, seed: bytes, rollouts: Sequence[Rollout], progress: OnProgress) -> list[Replay]:
        """One prefill per rollout, prompts of a group shared, noise by each rollout's own row.

        `progress` hears rollouts.

        Raises: EngineError.
        """

    def close(self) -> None: ...
