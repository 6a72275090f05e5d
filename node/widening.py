"""Products of bfloat16 matrices on a CPU that cannot multiply bfloat16: in float32, rounded once.

That is what other CPUs and GPUs compute too: a product of two bfloat16 numbers is exact in float32, in which sums are
kept everywhere. Without AVX-512 torch's own loops for bfloat16 take four to six times as long.
"""

from __future__ import annotations

import torch
from torch.nn.functional import linear

NEEDED = torch.backends.cpu.get_cpu_capability() == "AVX2"  # of what this CPU can
FEW_ROWS = 8  # for fewer, widening the weight takes longer than torch's own loop
PART_VALUES = 1 << 20  # of a weight, widened at once: they stay in the CPU's caches


def widened(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """As `torch.nn.functional.linear`, of bfloat16 states (..., H) and weight (V, H), differentiable in all three."""
    if states.numel() < FEW_ROWS * states.shape[-1]:
        return linear(states, weight, None if bias is None else bias.to(states.dtype))
    wide, rows = states.float(), max(1, PART_VALUES // weight.shape[1])
    parts = [
        linear(wide, weight[at : at + rows].float(), None if bias is None else bias[at : at + rows].float()).bfloat16()
        for at in range(0, weight.shape[0], rows)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


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
