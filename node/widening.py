"""Products of bfloat16 matrices on a CPU that cannot multiply bfloat16: in float32, rounded once.

That is what other CPUs and GPUs compute too: a product of two bfloat16 numbers is exact in float32, in which sums are
kept everywhere. Without AVX-512 torch's own loops for bfloat16 take four to six times as long.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear

NEEDED = torch.backends.cpu.get_cpu_capability() == "AVX2"  # of what this CPU can
FEW_ROWS = 8  # for fewer, widening the weight takes longer than torch's own loop
PART_VALUES = 1 << 20  # of a weight, widened at once: they stay in the CPU's caches


def widened(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """As `torch.nn.functional.linear`, of bfloat16 states (..., H) and weight (V, H), differentiable in all three."""
    if states.numel() < FEW_ROWS * states.shape[-1]:
        return linear(states, weight, None if bias is None else bias.to(states.dtype))
    product_NV: torch.Tensor = _Product.apply(states.reshape(-1, states.shape[-1]), weight, bias)  # type: ignore[no-untyped-call]
    return product_NV.view(*states.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """Keeps what it was given, and widens it again on the way back. N rows."""

    @staticmethod
    def forward(ctx: Any, states_NH: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(states_NH, weight)
        ctx.bias_type = None if bias is None else bias.dtype
        product_NV = states_NH.new_empty(len(states_NH), len(weight))
        wide_NH = states_NH.float()
        for part in _parts(weight):
            product_NV[:, part] = linear(wide_NH, weight[part].float(), None if bias is None else bias[part].float())
        return product_NV

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        (gradient_NV,), (states_NH, weight) = gradients, ctx.saved_tensors
        wide_NH, of_states_NH, of_weight = states_NH.float(), torch.zeros_like(states_NH, dtype=torch.float32), []
        for part in _parts(weight):
            wide_NP = gradient_NV[:, part].float()
            of_states_NH += wide_NP @ weight[part].float()
            of_weight.append((wide_NP.T @ wide_NH).to(weight.dtype))
        of_bias = None if ctx.bias_type is None else gradient_NV.sum(0, dtype=torch.float32).to(ctx.bias_type)
        return of_states_NH.to(states_NH.dtype), torch.cat(of_weight), of_bias


def _parts(weight: torch.Tensor) -> list[slice]:
    rows = max(1, PART_VALUES // weight.shape[1])
    return [slice(at, at + rows) for at in range(0, len(weight), rows)]


def product(states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As `torch.nn.functional.linear`, widened where that is needed."""
    needed = NEEDED and weight.device.type == "cpu" and weight.dtype == torch.bfloat16
    return widened(states, weight) if needed else linear(states, weight)


class Widened(torch.nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return widened(input, self.weight, self.bias)


def widen(model: torch.nn.Module) -> None:
    """Has every linear layer of `model` multiply so."""
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = Widened
