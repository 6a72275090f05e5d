"""The learner: accepted groups in, new weights out.

Forward and backward run in bfloat16 from the very weights that are published, since rollouts come from those: training
a float32 copy instead makes the two policies differ by more than a step does. N output tokens of a micro-batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor

from ledger.base import Version
from node.errors import Malformed
from node.progress import OnProgress
from node.training.advantages import group_advantages, is_informative
from node.training.batch import GroupId, TrainingGroup
from node.training.checkpoint import KEEP, State, latest_state, save_state
from node.training.export import export
from node.training.hyper import Hyper
from node.training.logprobs import TokenStatistics, token_statistics
from node.training.loss import Objective, is_clipped, token_losses
from node.training.masters import Masters
from node.training.model import CausalModel
from node.training.packing import MicroBatch, Output, pack, strips_of

MAX_ASYNC_LEVEL = 255  # the RunSpec's bound: an older group can never be selected again


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a batch did. loss and clip_share are means over `tokens`, the output tokens that carried a gradient.

    grad_norm: the largest of the batch's updates, before clipping. mean_reward: over all rollouts, also those whose
    group carried no gradient. skipped: why the weights did not change as asked, else None.
    """

    loss: float
    grad_norm: float
    clip_share: float
    mean_reward: float
    tokens: int
    skipped: str | None


@dataclass(frozen=True, slots=True)
class _Update:
    loss_sum: float
    clipped: int
    tokens: int
    grad_norm: float


class Learner:
    """Trains the model of `folder` in place; blocking, one call at a time.

    `version` counts batches taken, so it is the version of the weights it holds; `consumed` are groups not to take
    again; `lineage` is what its last state was saved with. `temperature` is the run's: the policy that is improved is
    the one that was sampled.

    Raises: EngineError, ConfigError: see `CausalModel`.
    """

    def __init__(self, folder: Path, hyper: Hyper, temperature: float, threads: int, device: str = "cpu") -> None:
        self.version = Version(0)
        self.lineage = ""
        self._consumed: dict[GroupId, Version] = {}
        self._folder, self._hyper, self._temperature, self._threads = folder, hyper, temperature, threads
        self._objective = Objective(hyper.clip, hyper.delta, hyper.kl, hyper.entropy)
        self._model = CausalModel(folder, device)
        self._masters = Masters(self._model.module, hyper)
        self._reference = CausalModel(folder, device) if hyper.kl else None

    @property
    def consumed(self) -> frozenset[GroupId]:
        return frozenset(self._consumed)

    def step(self, groups: Sequence[TrainingGroup], progress: OnProgress) -> StepReport:
        """Takes `groups` as one batch: afterwards `version` is one more and they are consumed.

        The weights stay as they are where no group has rewards that differ, or a gradient is not finite; the report
        says so. Each optimiser step is over whole groups, its loss the mean over all their output tokens,
        which `progress` hears of.

        Raises: Malformed: tokens that the model does not have; nothing has changed then.
        """
        for group in groups:
            self._require_fits(group)
        informative = [group for group in groups if is_informative(group.rewards)]
        parts = [informative[k :: self._hyper.optimizer_steps] for k in range(self._hyper.optimizer_steps)]
        with _threads(self._threads):
            updates = self._train([self._pack(part) for part in parts if part], progress)
        self._finish(groups)
        return _report(groups, updates)

    def export(self, folder: Path) -> None:
        """Writes the published (bfloat16) weights and the base's small files to `folder`; see `export.export`."""
        export(dict(self._model.module.named_parameters(remove_duplicate=False)), self._folder, folder)

    def save_state(self, root: Path, lineage: str = "", keep: int = KEEP) -> Path:
        """See `checkpoint.save_state`."""
        self.lineage = lineage
        return save_state(root, State(self.version, self._consumed, dict(self._masters.tensors()), lineage), keep)

    def resume(self, root: Path) -> bool:
        """Continues from the last whole state in `root`; False where there is none.

        Raises: StoreError: no state can be used, or it is of another model.
        """
        state = latest_state(root)
        if state is None:
            return False
        self._masters.restore(state.tensors)
        self.version, self._consumed, self.lineage = state.version, dict(state.consumed), state.lineage
        return True

    def _train(self, parts: Sequence[Sequence[MicroBatch]], progress: OnProgress) -> list[_Update]:
        """One optimiser step per part. Old log-probabilities are those of the weights at the start of the batch."""
        total, done = sum(batch.tokens for part in parts for batch in part), 0
        old = [[self._logprobs(self._model, batch) for batch in part] for part in parts] if len(parts) > 1 else None
        updates = []
        for k, part in enumerate(parts):
            self._masters.forget_gradient()
            tokens, loss_sum, clipped = sum(batch.tokens for batch in part), 0.0, 0
            for j, batch in enumerate(part):
                batch_loss, batch_clipped = self._backward(batch, old[k][j] if old else None, tokens)
                loss_sum, clipped, done = loss_sum + batch_loss, clipped + batch_clipped, done + batch.tokens
                progress(done, total)
            updates.append(_Update(loss_sum, clipped, tokens, self._masters.update()))
        return updates

    def _backward(self, batch: MicroBatch, old_N: Tensor | None, tokens: int) -> tuple[float, int]:
        """Adds the batch's gradient to the masters'; returns its summed loss and its clipped tokens.

        The head goes forward and backward chunk by chunk, so that the logits of one chunk exist at a time and none is
        computed twice; the body goes backward once, from the gradient that the chunks left at its output.
        """
        hidden_NH = self._model.hidden(batch)
        reference_N = self._logprobs(self._reference, batch) if self._reference else None
        loss_sum, clipped, gradients = 0.0, 0, []
        for rows in self._chunks(batch):
            chunk_NH = hidden_NH.detach()[rows].requires_grad_()
            logprobs, entropies = self._statistics(self._model, chunk_NH, batch.targets[rows])
            old = logprobs.detach() if old_N is None else old_N[rows]
            reference = None if reference_N is None else reference_N[rows]
            advantages = batch.advantages[rows].to(chunk_NH.device)
            losses = token_losses(logprobs, old, advantages, entropies, reference, self._objective)
            (losses.sum() / tokens).backward()  # type: ignore[no-untyped-call]
            gradients.append(_gradient(chunk_NH))
            loss_sum += float(losses.detach().sum())
            clipped += int(is_clipped(logprobs.detach(), old, advantages, self._hyper.clip, self._hyper.delta).sum())
        hidden_NH.backward(torch.cat(gradients))  # type: ignore[no-untyped-call]
        return loss_sum, clipped

    @torch.no_grad()
    def _logprobs(self, model: CausalModel, batch: MicroBatch) -> Tensor:
        hidden_NH = model.hidden(batch)
        chunks = [self._statistics(model, hidden_NH[rows], batch.targets[rows]) for rows in self._chunks(batch)]
        return torch.cat([chunk.logprobs for chunk in chunks])

    def _chunks(self, batch: MicroBatch) -> Iterator[slice]:
        size = self._hyper.head_chunk_tokens
        return (slice(start, start + size) for start in range(0, batch.tokens, size))

    def _statistics(self, model: CausalModel, hidden_NH: Tensor, targets_N: Tensor) -> TokenStatistics:
        targets_N = targets_N.to(hidden_NH.device)
        return token_statistics(hidden_NH, model.head, targets_N, self._temperature, self._hyper.entropy > 0)

    def _pack(self, groups: Sequence[TrainingGroup]) -> list[MicroBatch]:
        budget = self._hyper.micro_batch_tokens
        strips = []
        for group in groups:
            advantages = group_advantages(group.rewards, self._hyper.advantage_by_std)
            outputs = [
                Output(rollout.output_ids, float(advantage))
                for rollout, advantage in zip(group.rollouts, advantages, strict=True)
            ]
            strips += strips_of(group.rollouts[0].prompt_ids, outputs, budget)
        return pack(strips, budget)

    def _require_fits(self, group: TrainingGroup) -> None:
        for rollout in group.rollouts:
            ids = (*rollout.prompt_ids, *rollout.output_ids)
            if not rollout.prompt_ids or not rollout.output_ids:
                raise Malformed(f"a rollout of {group.commitment.hex()} has no prompt or no output")
            if min(ids) < 0 or max(ids) >= self._model.vocabulary or len(ids) > self._model.max_length:
                raise Malformed(
                    f"a rollout of {group.commitment.hex()} has {len(ids)} tokens in [{min(ids)}, {max(ids)}]: the "
                    f"model takes {self._model.max_length} of a vocabulary of {self._model.vocabulary}"
                )

    def _finish(self, groups: Sequence[TrainingGroup]) -> None:
        self.version = Version(self.version + 1)
        self._consumed |= {group.id: group.version for group in groups}
        oldest = self.version - MAX_ASYNC_LEVEL
        self._consumed = {id_: version for id_, version in self._consumed.items() if version >= oldest}


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _report(groups: Sequence[TrainingGroup], updates: Sequence[_Update]) -> StepReport:
    rewards = [reward for group in groups for reward in group.rewards]
    tokens = sum(update.tokens for update in updates)
    bad = [update.grad_norm for update in updates if not isfinite(update.grad_norm)]
    skipped = f"{len(bad)} of {len(updates)} gradients were not finite" if bad else None
    if not updates:
        skipped = "no group has rewards that differ"
    return StepReport(
        loss=sum(update.loss_sum for update in updates) / max(tokens, 1),
        grad_norm=bad[0] if bad else max((update.grad_norm for update in updates), default=0.0),
        clip_share=sum(update.clipped for update in updates) / max(tokens, 1),
        mean_reward=sum(rewards) / max(len(rewards), 1),
        tokens=tokens,
        skipped=skipped,
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """torch's own threads, process-wide, for as long as the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
