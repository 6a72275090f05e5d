import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from node.training.loss import Objective, is_clipped, kl_k3, policy_objective, token_losses


def objective(ratio: float, advantage: float) -> tuple[float, float]:
    """Value and derivative with respect to the log-probability, at rho = `ratio`."""
    logprob = torch.tensor([math.log(ratio) - 1.0], requires_grad=True)
    value = policy_objective(logprob, torch.tensor([-1.0]), torch.tensor([advantage]), clip=0.2, delta=4.0)
    value.sum().backward()
    return value.item(), logprob.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.0, -2.0, -2.0, -2.0),
        (1.1, 2.0, 2.2, 2.2),
        (1.5, 2.0, 2.4, 0.0),  # 1.2 * 2: nothing more to gain
        (0.5, 2.0, 1.0, 1.0),  # the lesser of 0.5 * 2 and 0.8 * 2
        (0.5, -2.0, -1.6, 0.0),  # 0.8 * -2
        (3.0, -2.0, -6.0, -6.0),  # not clipped at 1.2: it has to come down
        (9.0, -2.0, -8.0, 0.0),  # the second side: 4 * -2, where plain PPO says -18
    ],
)
def test_the_two_sided_clip_by_hand(ratio, advantage, value, slope):
    assert objective(ratio, advantage) == (pytest.approx(value, rel=1e-5), pytest.approx(slope, rel=1e-5))


@pytest.mark.parametrize("log_ratio", [-1e4, -200.0, 200.0, 1e4])
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
def test_huge_log_ratios_give_finite_values_and_gradients(log_ratio, advantage):
    logprobs = torch.tensor([log_ratio, -1.0], requires_grad=True)
    old = torch.tensor([0.0, -1.0])
    entropies = torch.zeros(2)
    losses = token_losses(logprobs, old, torch.tensor([advantage, 1.0]), entropies, old, Objective(kl=0.1, entropy=0.1))
    losses.sum().backward()

    assert torch.isfinite(losses).all()
    assert torch.isfinite(logprobs.grad).all()


def slow_loss(logprob, old, advantage, entropy, reference, kl, bonus):
    """The formulas of INTELLECT-2 once more, one token at a time, in the order in which the paper has them."""
    rho = math.exp(logprob - old)
    clipped = 1.2 if rho > 1.2 else 0.8 if rho < 0.8 else rho
    two_sided = 4.0 if rho > 4.0 else rho
    first, second = two_sided * advantage, clipped * advantage
    k3 = math.exp(reference - logprob) - (reference - logprob) - 1
    return -(first if first < second else second) + kl * k3 - bonus * entropy


logprob = st.floats(-6, 0, width=32)
token = st.tuples(logprob, logprob, st.floats(-2, 2, width=32), st.floats(0, 5, width=32), logprob)


@settings(deadline=None, max_examples=60)
@given(st.lists(token, min_size=1, max_size=20))
def test_losses_equal_a_slow_implementation(tokens):
    columns = [torch.tensor(column, dtype=torch.float32) for column in zip(*tokens, strict=True)]
    losses = token_losses(*columns[:4], columns[4], Objective(clip=0.2, delta=4.0, kl=0.05, entropy=0.01))
    expected = [slow_loss(*values, kl=0.05, bonus=0.01) for values in tokens]

    torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float32), rtol=1e-4, atol=1e-4)


def test_clipped_tokens_are_those_without_a_slope():
    ratios = torch.tensor([0.5, 0.5, 1.0, 1.1, 1.5, 1.5, 3.0, 9.0, 9.0])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, -1.0, -1.0, 1.0])
    logprobs = ratios.log().requires_grad_()
    old = torch.zeros(9)
    policy_objective(logprobs, old, advantages, 0.2, 4.0).sum().backward()

    clipped = is_clipped(logprobs.detach(), old, advantages, 0.2, 4.0)

    assert clipped.tolist() == [False, True, False, False, True, False, False, True, True]
    assert clipped.tolist() == (logprobs.grad == 0).tolist()


def test_k3_is_zero_at_the_reference_and_positive_elsewhere():
    values = kl_k3(torch.tensor([-1.0, -1.0, -2.0]), torch.tensor([-1.0, -2.0, -1.0]))

    assert values.tolist() == pytest.approx([0.0, math.exp(-1), math.e - 2], abs=1e-6)
