"""Which part of a checkpoint's tensor a rank holds, where ranks are more than two or share a part."""

from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize(
    ("dim", "ranks", "replicas", "parts"),
    [
        (0, 4, 1, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (1, 2, 1, [[0, 1, 2], [3, 4, 5]]),
        (0, 4, 2, [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]),  # two heads of keys, four ranks
    ],
)
def test_each_rank_loads_and_patches_its_own_part(
    dim: int, ranks: int, replicas: int, parts: list[list[int]], device: str
) -> None:
    from node.engines.vllm.views import _shared

    whole = torch.arange(48.0).reshape(8, 6).bfloat16()
    indices, values = torch.tensor([0, 47, 20, 9, 30]), torch.tensor([-1.0, -2, -3, -4, -5])
    expected = whole.clone()
    expected.view(-1)[indices] = values.bfloat16()

    views: list[Any] = []
    for rank, part in enumerate(parts):
        own = torch.zeros_like(whole.index_select(dim, torch.tensor(part)), device=device)
        views.append(_shared(own, dim, rank, ranks, replicas))
        views[-1].load(whole)
        loaded = own.cpu().clone()
        views[-1].patch(indices, values)

        assert torch.equal(loaded, whole.index_select(dim, torch.tensor(part)))
        assert torch.equal(own.cpu(), expected.index_select(dim, torch.tensor(part)))

    speaking = [row for view, part in zip(views, parts, strict=True) if view.first for row in part]
    assert speaking == list(range(whole.shape[dim]))  # each part once
    assert {view.shape for view in views} == {(8, 6)}


def test_one_rank_has_the_whole_and_widened_biases_are_as_in_the_checkpoint() -> None:
    from node.engines.vllm.views import View

    bias = torch.tensor([1.0, -0.5, 3.0])  # float32, as vLLM keeps it for some CPUs

    assert torch.equal(View(bias).whole(), torch.tensor([1.0, -0.5, 3.0], dtype=torch.bfloat16))
