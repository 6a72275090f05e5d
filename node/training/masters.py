"""float32 master weights, their gradients and AdamW, behind a model whose bfloat16 weights are what is published.

A bfloat16 weight has 8 significant bits: an update under half a step of that grid would be lost each time, and a run
at a small learning rate learns nothing. The masters keep it until it shows.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from node.errors import StoreError
from node.training.hyper import Hyper

MOMENTS = ("exp_avg", "exp_avg_sq")  # torch.optim.AdamW's names


class Masters:
    """Owns the optimiser. After `update` every parameter of the model is its master, rounded to nearest even."""

    def __init__(self, model: nn.Module, hyper: Hyper) -> None:
        self._hyper = hyper
        self._parameters = dict(model.named_parameters())
        self.weights = {name: parameter.detach().float() for name, parameter in self._parameters.items()}
        self._optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=hyper.learning_rate,
            betas=(hyper.beta_1, hyper.beta_2),
            eps=hyper.adam_epsilon,
            weight_decay=hyper.weight_decay,
            fused=True,  # one pass over memory instead of six
        )
        for name, parameter in self._parameters.items():
            master = self.weights[name]
            self._optimizer.state[master] = {
                "step": torch.zeros((), dtype=torch.float32, device=master.device),
                **{moment: torch.zeros_like(master) for moment in MOMENTS},
            }
            parameter.register_post_accumulate_grad_hook(_AddTo(master))  # type: ignore[no-untyped-call]

    def forget_gradient(self) -> None:
        """Drops what has been accumulated, e.g. by a step that failed half-way."""
        self._optimizer.zero_grad(set_to_none=True)

    def update(self) -> float:
        """One step along the accumulated gradient, its norm bounded; returns the norm before that.

        A norm that is not finite changes nothing. The gradient is forgotten either way.
        """
        gradients = [master.grad for master in self.weights.values() if master.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if torch.isfinite(norm):
            nn.utils.clip_grads_with_norm_(self.weights.values(), self._hyper.max_gradient_norm, norm)
            self._optimizer.step()
            self._publish()
        self.forget_gradient()
        return float(norm)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Everything that `restore` needs, by name: not copies."""
        for name, master in self.weights.items():
            state = self._optimizer.state[master]
            yield f"weight/{name}", master
            for key in ("step", *MOMENTS):
                yield f"{key}/{name}", state[key]

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continues from `tensors`, bit for bit.

        Raises: StoreError: they are of another model; nothing has changed then.
        """
        targets = dict(self.tensors())
        expected = {name: (target.shape, target.dtype) for name, target in targets.items()}
        if expected != {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}:
            raise StoreError("the saved training state is of a model with other weights than the base folder's")
        for name, target in targets.items():
            target.copy_(tensors[name])
        self.forget_gradient()
        self._publish()

    @torch.no_grad()
    def _publish(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(self.weights[name])


class _AddTo:
    """Moves a parameter's gradient into its master as soon as autograd has it, so that one set is alive at a time."""

    def __init__(self, master: Tensor) -> None:
        self._master = master

    def __call__(self, parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is None:
            return
        if self._master.grad is None:
            self._master.grad = gradient.float()
        else:
            self._master.grad.add_(gradient)
        parameter.grad = None
