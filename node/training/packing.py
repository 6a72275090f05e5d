"""Rollouts as tensors: outputs of one prompt share it in a strip, strips fill micro-batches by a token budget.

A strip is `prompt | output | output ...`, each output seeing the prompt and itself alone, with the positions it would
have had behind the prompt: the prompt's activations are computed once for all of them. The last token of an output
predicts nothing and is left out.

R rows, L padded length, N output tokens of the micro-batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PROMPT = 0  # segment; outputs count from 1
PADDING = -1


@dataclass(frozen=True, slots=True)
class Output:
    """One rollout's tokens to learn from, all with the rollout's advantage."""

    ids: tuple[int, ...]
    advantage: float


@dataclass(frozen=True, slots=True)
class Strip:
    prompt_ids: tuple[int, ...]
    outputs: tuple[Output, ...]

    @property
    def length(self) -> int:
        """Tokens that go in."""
        return len(self.prompt_ids) + sum(len(output.ids) - 1 for output in self.outputs)


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """One forward pass. `rows`, `columns` (N,): where the hidden state lies that predicts `targets` (N,).

    input_ids, positions: (R, L); padding is on the right. mask: (R, 1, L, L) bool, True where a query (third axis)
    sees a key; None where causal attention says the same. advantages: (N,) float32.
    """

    input_ids: Tensor
    positions: Tensor
    mask: Tensor | None
    rows: Tensor
    columns: Tensor
    targets: Tensor
    advantages: Tensor

    @property
    def tokens(self) -> int:
        return len(self.targets)


def strips_of(prompt_ids: tuple[int, ...], outputs: Iterable[Output], max_tokens: int) -> list[Strip]:
    """First-fit decreasing: each output, longest first, joins the first strip that stays within `max_tokens`.

    An output too long for that has a strip of its own.
    """
    strips: list[Strip] = []
    for output in sorted(outputs, key=lambda output: -len(output.ids)):
        for k, strip in enumerate(strips):
            if strip.length + len(output.ids) - 1 <= max_tokens:
                strips[k] = Strip(prompt_ids, (*strip.outputs, output))
                break
        else:
            strips.append(Strip(prompt_ids, (output,)))
    return strips


def pack(strips: Sequence[Strip], max_tokens: int) -> list[MicroBatch]:
    """Micro-batches of at most `max_tokens` padded tokens (more only for one strip that is longer), longest first."""
    batches: list[list[Strip]] = []
    for strip in sorted(strips, key=lambda strip: -strip.length):
        if batches and batches[-1][0].length * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(strip)
        else:
            batches.append([strip])
    return [_tensors(batch) for batch in batches]


def _tensors(strips: Sequence[Strip]) -> MicroBatch:
    shape = (len(strips), max(strip.length for strip in strips))
    input_ids = torch.zeros(shape, dtype=torch.long)
    positions = torch.zeros(shape, dtype=torch.long)
    segments = torch.full(shape, PADDING)
    rows: list[int] = []
    columns: list[int] = []
    for row, strip in enumerate(strips):
        layout = _layout(strip)
        input_ids[row, : strip.length] = torch.tensor(layout.ids)
        positions[row, : strip.length] = torch.tensor(layout.positions)
        segments[row, : strip.length] = torch.tensor(layout.segments)
        columns += layout.sources
        rows += [row] * len(layout.sources)
    outputs = [output for strip in strips for output in strip.outputs]
    causal_is_enough = all(len(strip.outputs) == 1 for strip in strips)
    return MicroBatch(
        input_ids,
        positions,
        None if causal_is_enough else _mask(segments),
        torch.tensor(rows),
        torch.tensor(columns),
        torch.tensor([token for output in outputs for token in output.ids]),
        torch.tensor([output.advantage for output in outputs for _ in output.ids], dtype=torch.float32),
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    ids: list[int]
    positions: list[int]
    segments: list[int]
    sources: list[int]  # one per output token: the column that predicts it


def _layout(strip: Strip) -> _Layout:
    size = len(strip.prompt_ids)
    layout = _Layout(list(strip.prompt_ids), list(range(size)), [PROMPT] * size, [])
    for segment, output in enumerate(strip.outputs, start=1):
        start, inputs = len(layout.ids), len(output.ids) - 1
        layout.ids.extend(output.ids[:-1])
        layout.positions.extend(range(size, size + inputs))
        layout.segments.extend([segment] * inputs)
        layout.sources.extend([size - 1, *range(start, start + inputs)])
    return layout


def _mask(segments_RL: Tensor) -> Tensor:
    """Causal, and only within the own segment or into the prompt. Padding sees itself, so no row is empty."""
    length = segments_RL.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    query, key = segments_RL[:, :, None], segments_RL[:, None, :]
    return (causal & ((key == query) | (key == PROMPT)))[:, None]
