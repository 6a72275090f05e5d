"""bfloat16 multiplied in float32 against a product in double precision that is rounded once."""

import copy
from typing import Any

import pytest
import torch

from node.widening import PART_VALUES, Widened, product, widen, widened


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


@pytest.mark.parametrize(
    ("states", "outputs"),
    [((40, 96), 64), ((2, 20, 96), 64), ((3, 96), 64), ((9, 96), 2 * PART_VALUES // 96 + 5)],  # few rows; three parts
)
@pytest.mark.parametrize("biased", [False, True])
def test_a_product_is_rounded_once(states: tuple[int, ...], outputs: int, biased: bool) -> None:
    x, weight = random(*states), random(outputs, states[-1])
    bias = random(outputs).float() if biased else None
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())

    found = widened(x, weight, bias)

    assert (found.dtype, found.shape) == (torch.bfloat16, (*states[:-1], outputs))
    assert (found == exact.bfloat16()).double().mean() > 0.999
    torch.testing.assert_close(found.double(), exact, rtol=2**-7, atol=1e-4)


@pytest.mark.parametrize("outputs", [64, PART_VALUES // 96 + 5])  # one part, and two
def test_gradients_are_those_of_the_product(outputs: int) -> None:
    x, weight, onto = random(12, 96), random(outputs, 96), random(12, outputs)
    bias = random(outputs)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]

    (widened(*leaves) * onto).sum().backward()  # type: ignore[arg-type, no-untyped-call]

    wanted = (onto.double() @ weight.double(), onto.double().T @ x.double(), onto.double().sum(0))
    for leaf, gradient in zip(leaves, wanted, strict=True):
        assert leaf.grad is not None and leaf.grad.dtype == torch.bfloat16
        torch.testing.assert_close(leaf.grad.double(), gradient, rtol=2**-7, atol=0.05)


def test_what_is_kept_for_the_way_back_is_what_was_given() -> None:
    kept: list[torch.Tensor] = []
    x, weight = random(12, 96), random(64, 96).requires_grad_()

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        widened(x, weight)

    assert {tensor.data_ptr() for tensor in kept} == {x.data_ptr(), weight.data_ptr()}


def test_a_widened_model_keeps_its_parameters_and_what_it_computes() -> None:
    plain = torch.nn.Sequential(torch.nn.Linear(96, 64), torch.nn.SiLU(), torch.nn.Linear(64, 8, bias=False)).bfloat16()
    wide: Any = copy.deepcopy(plain)
    parameters = list(wide.parameters())

    widen(wide)

    assert [type(module) for module in wide] == [Widened, torch.nn.SiLU, Widened]
    assert all(new is old for new, old in zip(wide.parameters(), parameters, strict=True))
    torch.testing.assert_close(wide(random(16, 96)), plain(random(16, 96)), rtol=0.02, atol=0.02)


def test_a_product_is_that_of_its_type() -> None:
    x, weight = torch.randn(9, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)

    torch.testing.assert_close(product(x, weight), x @ weight.T)
    torch.testing.assert_close(product(x.bfloat16(), weight.bfloat16()).double(), x @ weight.T, rtol=0.05, atol=0.05)
