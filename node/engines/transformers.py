"""The engine over transformers and torch: batched generation with seeded noise, and replay by prefill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from hashing.errors import HashingError
from node.engines import weights
from node.engines.base import Policy, Prompt
from node.engines.changes import Change, require_fit
from node.engines.decoding import Row, decode
from node.engines.forward import Forward
from node.engines.replaying import batches, replay_batch
from node.engines.stored import read_config
from node.errors import EngineError
from node.progress import OnProgress
from node.rollouts.rollout import Replay, Rollout, Sample


class TransformersEngine:
    """An `Engine` on one GPU or on the CPU. Draws nothing from torch's random generators."""

    slots_at_once = 1  # it has no running batch that others' rows could join

    def __init__(self, policy: Policy, threads: int | None, batch_rows: int = 32, gpu: int | None = None) -> None:
        """`threads` of the CPU for torch, its own default if None; at most `batch_rows` rows are generated at once, on
        GPU number `gpu` or on the CPU."""
        if threads is not None:
            torch.set_num_threads(threads)
        self._policy = policy
        self._batch_rows = batch_rows
        self._device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
        self._model: Any = None
        self._config = b""

    @property
    def name(self) -> str:
        import transformers

        device = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"
        return f"transformers {transformers.__version__}, torch {torch.__version__}, {device}"

    def load(self, folder: Path) -> None:
        """The weights of `folder`, in place if what is loaded has the same config.json.

        Those that cannot be read, or do not fit the same config.json, leave what was loaded; a failure while they are
        read, or while another model is built, leaves nothing loaded.

        Raises:
            EngineError: they are not what is loaded, for the reason that it names.
        """
        config = read_config(folder)
        if self._model is not None and config == self._config:
            self._swap(folder)
            return
        self.close()
        self._model = weights.build(folder, self._device)
        self._config = config

    def _swap(self, folder: Path) -> None:
        try:
            weights.swap(self._model, folder)
        except (OSError, SafetensorError, RuntimeError) as error:
            self.close()
            raise EngineError(f"{folder}: reading the weights failed midway; nothing is loaded now: {error}") from error

    def patch(self, folder: Path, changes: Sequence[Change]) -> None:
        """As `Engine.patch`.

        Raises:
            EngineError: a change does not fit, and nothing was written; or the machine failed and nothing is loaded.
        """
        self._forward()
        if read_config(folder) != self._config:
            raise EngineError(f"{folder}: not the configuration that is loaded")
        require_fit(changes, weights.shapes(self._model))
        try:
            weights.patch(self._model, changes)
        except RuntimeError as error:
            self.close()
            raise EngineError(f"{folder}: patching failed midway; nothing is loaded now: {error}") from error

    def weights_digest(self) -> str:
        """As `Engine.weights_digest`."""
        self._forward()
        return weights.digest(sorted(self._model.named_parameters()))

    def generate(self, seed: bytes, prompts: Sequence[Prompt], progress: OnProgress) -> list[Sample]:
        """As `Engine.generate`; the total shrinks where a row ends early.

        Raises:
            EngineError: nothing is loaded, a prompt cannot be run, or the machine failed.
        """
        forward, policy = self._forward(), self._policy
        for prompt in prompts:
            _require_ids(forward, prompt, len(prompt) + policy.max_output_tokens)
        by_row = [prompt for prompt in prompts for _ in range(policy.group_size)]
        done, total = 0, len(by_row) * policy.max_output_tokens

        def advanced(tokens: int, spared: int) -> None:
            nonlocal done, total
            done, total = done + tokens, total - spared
            progress(done, total)

        samples: dict[int, Sample] = {}
        try:
            with torch.inference_mode():
                for at in range(0, len(by_row), self._batch_rows):
                    here = by_row[at : at + self._batch_rows]
                    starts = forward.prefill(here)
                    rows = [Row(at + i, starts[prompt]) for i, prompt in enumerate(here)]
                    samples |= decode(forward, policy, seed, rows, advanced)
        except (RuntimeError, HashingError) as error:
            raise EngineError(f"generation failed: {error}") from error
        return [samples[row] for row in range(len(by_row))]

    def replay(self, seed: bytes, rollouts: Sequence[Rollout], progress: OnProgress) -> list[Replay]:
        """As `Engine.replay`.

        Raises:
            EngineError: nothing is loaded, a rollout cannot be run, or the machine failed.
        """
        forward = self._forward()
        for rollout in rollouts:
            _require_ids(forward, rollout.prompt_ids, len(rollout.prompt_ids) + len(rollout.output_ids))
            _require_ids(forward, rollout.output_ids, len(rollout.output_ids))
        replays: dict[int, Replay] = {}
        try:
            with torch.inference_mode():
                for batch in batches(rollouts):
                    here = [rollouts[i] for i in batch]
                    prefilled = forward.prefill([rollout.prompt_ids for rollout in here])
                    starts = [prefilled[rollout.prompt_ids] for rollout in here]
                    found = replay_batch(forward, self._policy, seed, here, starts)
                    replays |= dict(zip(batch, found, strict=True))
                    progress(len(replays), len(rollouts))
        except (RuntimeError, HashingError) as error:
            raise EngineError(f"replay failed: {error}") from error
        return [replays[i] for i in range(len(rollouts))]

    def close(self) -> None:
        """Unloads the model and gives its memory back."""
        self._model, self._config = None, b""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _forward(self) -> Forward:
        if self._model is None:
            raise EngineError("no model is loaded")
        return Forward(self._model, self._device)


def _require_ids(forward: Forward, ids: Prompt, length: int) -> None:
    """Raises EngineError unless `ids` are tokens of the model and `length` tokens have positions in it."""
    if not ids or min(ids) < 0 or max(ids) >= forward.vocabulary:
        raise EngineError(f"prompt or output is empty, or has a token outside the {forward.vocabulary} of the model")
    if length > forward.positions:
        raise EngineError(f"prompt and output of {length} tokens: the model has {forward.positions} positions")
