"""The live weights of vLLM's model under the names of the checkpoint, whatever vLLM merged or shared among its ranks.

vLLM merges query, key and value into one matrix, and gate and up into another; each rank of a tensor-parallel group
holds a part of most matrices. A `View` is a rank's part of one checkpoint tensor: what is written to it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed import get_tp_group
from vllm.model_executor.layers.linear import ColumnParallelLinear, RowParallelLinear
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

MERGED: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
KEYS_AND_VALUES = ("k_proj", "v_proj")


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """`memory` starts at `start` of dimension `dim`, which is `size` long in all; where `dim` is None, every rank has
    the whole. Of ranks that have the same part, as of keys and values of few heads, the `first` speaks for it."""

    memory: torch.Tensor
    dim: int | None = None
    start: int = 0
    size: int = 0
    first: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        return tuple(self.size if dim == self.dim else length for dim, length in enumerate(self.memory.shape))

    def load(self, whole: torch.Tensor) -> None:
        """Copies this rank's part of `whole`."""
        part = whole if self.dim is None else whole.narrow(self.dim, self.start, self.memory.shape[self.dim])
        self.memory.copy_(part)

    def whole(self) -> torch.Tensor:
        """The tensor of all ranks together, in bfloat16; all of them have to ask."""
        part = self.memory.to(torch.bfloat16)  # some CPUs multiply with biases that vLLM has widened
        if self.dim is None:
            return part
        whole = part.new_zeros(self.shape)
        if self.first:
            whole.narrow(self.dim, self.start, part.shape[self.dim]).copy_(part)
        # sums of bytes, one of which is not 0 at most, are exact; ranks' parts need not be of one length
        torch.distributed.all_reduce(whole.view(torch.uint8), group=get_tp_group().device_group)
        return whole

    def patch(self, indices_N: torch.Tensor, values_N: torch.Tensor) -> None:
        """Writes values at flat indices of the whole tensor; those of other ranks are left to them."""
        at = list(torch.unravel_index(indices_N.to(self.memory.device), self.shape))
        values_N = values_N.to(self.memory)
        if self.dim is not None:
            at[self.dim] = at[self.dim] - self.start
            ours_N = (at[self.dim] >= 0) & (at[self.dim] < self.memory.shape[self.dim])
            at, values_N = [index_N[ours_N] for index_N in at], values_N[ours_N]
        self.memory[tuple(at)] = values_N


def views(model: Any, rank: int, ranks: int) -> dict[str, View]:
    """By checkpoint name, the tensors of a dense decoder as this rank holds them; a tied output layer is not one."""
    found: dict[str, View] = {}
    for path, module in model.named_modules():
        for kind, parameter in module.named_parameters(recurse=False):
            if any(view.memory.data_ptr() == parameter.data_ptr() for view in found.values()):
                continue
            found.update(_views(path, module, kind, parameter.data, rank, ranks))
    return found


def _views(
    path: str, module: Any, kind: str, memory: torch.Tensor, rank: int, ranks: int
) -> Iterator[tuple[str, View]]:
    parent, _, name = path.rpartition(".")
    if name in MERGED:
        for part, rows in zip(MERGED[name], torch.split(memory, module.output_partition_sizes), strict=True):
            replicas = 1 if part not in KEYS_AND_VALUES else module.num_kv_head_replicas
            yield f"{parent}.{part}.{kind}", _shared(rows, 0, rank, ranks, replicas)
    elif isinstance(module, VocabParallelEmbedding):  # padded beyond what the checkpoint has
        here = module.shard_indices
        rows = memory[: here.num_org_elements]
        yield f"{path}.{kind}", View(rows, 0 if ranks > 1 else None, here.org_vocab_start_index, module.org_vocab_size)
    elif isinstance(module, ColumnParallelLinear):
        yield f"{path}.{kind}", _shared(memory, 0, rank, ranks)
    elif isinstance(module, RowParallelLinear) and kind == "weight":
        yield f"{path}.{kind}", _shared(memory, 1, rank, ranks)
    else:
        yield f"{path}.{kind}", View(memory)


def _shared(memory: torch.Tensor, dim: int, rank: int, ranks: int, replicas: int = 1) -> View:
    """`replicas` ranks in a row have the same part."""
    if ranks == 1:
        return View(memory)
    length = memory.shape[dim]
    return View(memory, dim, rank // replicas * length, ranks // replicas * length, rank % replicas == 0)
