import pytest
import torch

from node.training.logprobs import token_statistics


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_and_entropies_are_those_of_the_tempered_softmax(temperature):
    generator = torch.Generator().manual_seed(0)
    hidden, head = torch.randn(5, 8, generator=generator), torch.randn(11, 8, generator=generator)
    targets = torch.tensor([0, 10, 3, 3, 7])

    found = token_statistics(hidden, head, targets, temperature, with_entropy=True)

    probabilities = torch.softmax(hidden.double() @ head.double().T / temperature, dim=-1)
    expected = probabilities[torch.arange(5), targets].log()
    torch.testing.assert_close(found.logprobs.double(), expected, rtol=1e-5, atol=1e-5)
    entropies = torch.distributions.Categorical(probs=probabilities).entropy()
    torch.testing.assert_close(found.entropies.double(), entropies, rtol=1e-5, atol=1e-5)


def test_bfloat16_weights_give_float32_logprobs():
    found = token_statistics(
        torch.ones(1, 4, dtype=torch.bfloat16), torch.zeros(4, 4, dtype=torch.bfloat16), torch.tensor([1]), 1.0
    )

    assert found.logprobs.dtype == torch.float32
    assert found.logprobs.item() == pytest.approx(-1.3862944)  # log(1/4)
