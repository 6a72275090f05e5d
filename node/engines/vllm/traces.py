"""Requests under way in a worker: one that is sampled, and one that is only looked at again.

Letters: T output tokens, N tokens that were computed in a step, H hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from hashing.proof import build_proofs
from hashing.sampling import Key
from node.engines.scoring import TokenScores
from node.rollouts.rollout import Replay


@dataclass(frozen=True, slots=True)
class Proven:
    """A finished request: as `node.rollouts.rollout.Sample`, without why it finished."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    proofs: tuple[bytes, ...]


@dataclass(slots=True)
class Trace:
    """What was sampled for a request so far. `states` are the hidden states (H,) that predicted each token."""

    key: Key
    row: int
    prompt_length: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    states: list[npt.NDArray[np.uint16]] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.ids)

    def note(self, position: int, token: int, logprob: float, state_H: npt.NDArray[np.uint16]) -> None:
        """Output position `position` was sampled: for the first time, or again after vLLM had dropped what it had.

        Raises: RuntimeError: a position before it is missing.
        """
        if position > self.length:
            raise RuntimeError(f"output position {position} was sampled after {self.length} tokens")
        del self.ids[position:], self.logprobs[position:], self.states[position:]
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.states.append(state_H.copy())  # of its own: the step's memory goes, however long a row lives

    def result(self, emitted: int) -> Proven:
        """Of the tokens that vLLM `emitted`: the next one may be under way before the end of a sequence is seen.

        Raises: RuntimeError: the model's logits were not finite.
        """
        del self.ids[emitted:], self.logprobs[emitted:], self.states[emitted:]
        if not np.isfinite(self.logprobs).all():
            raise RuntimeError("a log-probability is not finite: the weights or the engine are broken")
        return Proven(tuple(self.ids), tuple(self.logprobs), build_proofs(np.stack(self.states)))


@dataclass(slots=True)
class Recheck:
    """A finished output that is prefilled after its prompt: all of it is fed but its last token."""

    key: Key
    row: int
    prompt_length: int
    output: tuple[int, ...]
    states: list[torch.Tensor] = field(default_factory=list)
    scores: list[TokenScores] = field(default_factory=list)

    @property
    def length(self) -> int:
        return sum(len(states_NH) for states_NH in self.states)

    def next_positions(self, count: int) -> range:
        return range(self.length, self.length + count)

    def unseen(self, end: int, states_NH: torch.Tensor) -> torch.Tensor:
        """Of states of N tokens, the last of which is token `end - 1` of the sequence: those (T, H) that predicted what
        follows in the output.

        What was seen before is left out: a request that was preempted is computed again.
        """
        wanted = self.prompt_length - 1 + self.length  # the token whose state predicts the next of the output
        first = wanted - (end - len(states_NH))
        return states_NH[first : first + len(self.output) - self.length] if first >= 0 else states_NH[:0]

    def note(self, states_TH: torch.Tensor, scores: TokenScores) -> None:
        """What follows in the output was predicted by these states, and has these scores (T,)."""
        self.states.append(states_TH.clone())
        self.scores.append(scores)

    def result(self, _emitted: int) -> Replay:
        """Raises: RuntimeError: a part of the output was not computed."""
        if self.length != len(self.output):
            raise RuntimeError(f"{self.length} of {len(self.output)} tokens were looked at")
        bits_TH = torch.cat(self.states).contiguous().view(torch.int16).cpu().numpy().view(np.uint16)
        logprobs_T, gaps_T, deficits_T = (torch.cat(column).cpu().numpy() for column in zip(*self.scores, strict=True))
        return Replay(bits_TH, logprobs_T, gaps_T, deficits_T)
