"""vLLM's worker with what a contribution needs: seeded sampling, proofs, weights swapped in place, their digest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from vllm.model_executor.layers import utils
from vllm.platforms import current_platform

from node import widening
from node.engines import weights
from node.engines.stored import Shapes
from node.engines.vllm.sampler import SeededSampler
from node.engines.vllm.traces import Proven
from node.engines.vllm.views import View, views
from node.rollouts.rollout import Replay

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Base
else:
    from vllm.v1.worker.gpu_worker import Worker as Base

PACK = utils.dispatch_cpu_unquantized_gemm


class ProvingWorker(Base):  # type: ignore[misc]
    """Each rank has one; only the first keeps what is sampled. Methods below are called on all ranks at once."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        with _weights_kept():
            super().load_model(*args, **kwargs)

    def begin(self, temperature: float) -> None:
        """From here on everything is sampled from the requests' own seeds."""
        self.seeded = SeededSampler(self.model_runner, temperature, notes=self._rank == 0)
        self.model_runner._model_forward = self.seeded.watch(self.model_runner._model_forward)
        self.model_runner.sampler = self.seeded

    def take(self, finished: list[tuple[str, int]]) -> list[Proven | Replay]:
        """Of finished requests, and of how many tokens each."""
        return self.seeded.take(finished)

    def forget(self, names: list[str]) -> None:
        """Requests that were aborted."""
        self.seeded.forget(names)

    def lengths(self, names: list[str]) -> list[int]:
        """Tokens of requests that are under way."""
        return self.seeded.lengths(names)

    # --- Weights

    @torch.no_grad()
    def swap(self, folder: str) -> None:
        """Copies the weights of `folder`, which are checked to fit, over those that are loaded.

        Raises:
            OSError, SafetensorError, RuntimeError: reading failed midway: what is loaded may be a mix.
        """
        found = self._views()
        for name, tensor in weights.stored_tensors(Path(folder), self.shapes()):
            found[name].load(tensor)
        self._repack()

    @torch.no_grad()
    def patch(self, changes: Sequence[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
        """Writes sparse changes, (tensor, flat indices, values) each."""
        found = self._views()
        for name, indices_N, values_N in changes:
            found[name].patch(indices_N, values_N)
        self._repack()

    def digest(self) -> str:
        """As `TransformersEngine.weights_digest`, of the tensors that are loaded, all ranks' parts together."""
        wholes = ((name, view.whole()) for name, view in sorted(self._views().items()))
        return weights.digest(wholes)

    def shapes(self) -> Shapes:
        return {name: view.shape for name, view in self._views().items()}

    def _views(self) -> dict[str, View]:
        return views(self.model_runner.get_model(), self._rank, get_tensor_model_parallel_world_size())

    def _repack(self) -> None:
        """On a CPU, layers multiply with a packed copy of their weights, which is made anew."""
        for module in self.model_runner.get_model().modules():
            if hasattr(module, "cpu_linear"):
                _pack(module)

    @property
    def _rank(self) -> int:
        return int(get_tensor_model_parallel_rank())


def _pack(layer: Any) -> None:
    """Says how `layer` multiplies on a CPU; vLLM has nothing for bfloat16 where that has to be widened."""
    if widening.NEEDED and layer.weight.ndim == 2:
        layer.cpu_linear = widening.widened
    else:
        PACK(layer, remove_weight=False)


@contextmanager
def _weights_kept() -> Iterator[None]:
    """Within it, vLLM does not drop the weights that it packs for a CPU: they are what a digest is taken of."""

    def kept(layer: torch.nn.Module, remove_weight: bool) -> None:
        _pack(layer)

    utils.dispatch_cpu_unquantized_gemm = kept
    try:
        yield
    finally:
        utils.dispatch_cpu_unquantized_gemm = PACK
