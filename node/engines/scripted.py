"""An engine without a model: states and logits are a hash of weights and context. For tests, demos and simulations.

It keeps every promise of the protocol (proofs, seeded noise, log-probabilities, replay), in microseconds a token and
without torch; since a context has one exact state, replay agrees with generation to the last bit. About one token in
twelve is EOS.

Letters: T output tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hashing.errors import HashingError
from hashing.proof import build_proofs
from hashing.sampling import noise
from node.engines.base import Policy
from node.engines.changes import Change
from node.errors import EngineError
from node.progress import OnProgress
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH, Replay, Rollout, Sample

MEAN_TOKENS = 12  # until EOS
MAX_SIZE = 1 << 20  # of vocabulary and hidden state


@dataclass(frozen=True, slots=True)
class _Weights:
    digest: bytes
    vocabulary: int
    hidden: int


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """What predicts the next token of a context: bfloat16 patterns (H,), and logits over temperature (V,)."""

    bits_H: npt.NDArray[np.uint16]  # noqa: N815
    scaled_V: npt.NDArray[np.float32]  # noqa: N815

    def logprob(self, token: int) -> np.float32:
        best = self.scaled_V.max()
        normaliser = best + np.log(np.exp(self.scaled_V - best).sum(dtype=np.float32))
        return np.float32(self.scaled_V[token] - normaliser)


class ScriptedEngine:
    """An `Engine` whose model is a hash. Other weights, or another prompt, give unrelated states and tokens."""

    slots_at_once = 1

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._weights: _Weights | None = None

    @property
    def name(self) -> str:
        return "scripted 1, cpu"

    def load(self, folder: Path) -> None:
        """Takes the sizes from config.json and a digest of the safetensors' bytes.

        Raises:
            EngineError: a file is missing or is not what it should be; what was loaded stays.
        """
        try:
            config = json.loads((folder / "config.json").read_bytes())
            vocabulary, hidden = int(config["vocab_size"]), int(config["hidden_size"])
            files = sorted(folder.glob("*.safetensors"))
            digests = [hashlib.sha256(file.read_bytes()).digest() for file in files]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise EngineError(f"{folder}: not a model folder: {error}") from error
        if not files or not (2 <= vocabulary <= MAX_SIZE and 128 <= hidden <= MAX_SIZE):
            raise EngineError(f"{folder}: no safetensors, or sizes {vocabulary} and {hidden} that cannot be used")
        self._weights = _Weights(hashlib.sha256(b"".join(digests)).digest(), vocabulary, hidden)

    def patch(self, folder: Path, changes: Sequence[Change]) -> None:
        """As `Engine.patch`; what counts is a digest of the files, so that all of them are read.

        Raises:
            EngineError: nothing is loaded, or as `load`.
        """
        self._loaded()
        self.load(folder)

    def weights_digest(self) -> str:
        """SHA-256 in hex over the digests of the weight files."""
        return self._loaded().digest.hex()

    def generate(self, seed: bytes, prompts: Sequence[tuple[int, ...]], progress: OnProgress) -> list[Sample]:
        """As `Engine.generate`.

        Raises:
            EngineError: nothing is loaded, or a prompt cannot be run.
        """
        weights, size = self._loaded(), self._policy.group_size
        _require_ids(weights, prompts)
        samples: list[Sample] = []
        done, total = 0, len(prompts) * size * self._policy.max_output_tokens
        for row, prompt in enumerate(prompt for prompt in prompts for _ in range(size)):
            samples.append(self._sample(weights, seed, row, prompt))
            tokens = len(samples[-1].output_ids)
            done, total = done + tokens, total - (self._policy.max_output_tokens - tokens)
            progress(done, total)
        return samples

    def replay(self, seed: bytes, rollouts: Sequence[Rollout], progress: OnProgress) -> list[Replay]:
        """As `Engine.replay`.

        Raises:
            EngineError: nothing is loaded, or a rollout cannot be run.
        """
        weights = self._loaded()
        _require_ids(weights, [r.prompt_ids for r in rollouts] + [r.output_ids for r in rollouts])
        replays: list[Replay] = []
        for rollout in rollouts:
            replays.append(self._replay(weights, seed, rollout))
            progress(len(replays), len(rollouts))
        return replays

    def close(self) -> None:
        """Forgets the weights."""
        self._weights = None

    def _sample(self, weights: _Weights, seed: bytes, row: int, prompt: tuple[int, ...]) -> Sample:
        limit = self._policy.max_output_tokens
        noise_TV = _noise(seed, row, limit, weights.vocabulary)
        context = _context(weights, prompt)
        ids: list[int] = []
        logprobs: list[float] = []
        states: list[npt.NDArray[np.uint16]] = []
        while len(ids) < limit and not (ids and ids[-1] in self._policy.eos_ids):
            look = self._look(weights, context)
            token = int((look.scaled_V + noise_TV[len(ids)]).argmax())
            ids.append(token)
            logprobs.append(float(look.logprob(token)))
            states.append(look.bits_H)
            context = _longer(context, token)
        finish = FINISH_EOS if ids[-1] in self._policy.eos_ids else FINISH_LENGTH
        return Sample(tuple(ids), tuple(logprobs), build_proofs(np.stack(states)), finish)

    def _replay(self, weights: _Weights, seed: bytes, rollout: Rollout) -> Replay:
        row = rollout.group * self._policy.group_size + rollout.index
        noise_TV = _noise(seed, row, len(rollout.output_ids), weights.vocabulary)
        context = _context(weights, rollout.prompt_ids)
        looks = []
        for token in rollout.output_ids:
            looks.append(self._look(weights, context))
            context = _longer(context, token)
        scores_TV = np.stack([look.scaled_V for look in looks]) + noise_TV
        best_T2 = np.sort(np.partition(scores_TV, -2, axis=1)[:, -2:], axis=1)
        emitted_T = scores_TV[np.arange(len(looks)), list(rollout.output_ids)]
        return Replay(
            hidden_bits=np.stack([look.bits_H for look in looks]),
            logprobs=np.array([look.logprob(t) for look, t in zip(looks, rollout.output_ids, strict=True)], np.float32),
            gaps=best_T2[:, 1] - best_T2[:, 0],
            deficits=best_T2[:, 1] - emitted_T,
        )

    def _look(self, weights: _Weights, context: bytes) -> _Look:
        """Integers of a counter-based generator keyed by the context, so that it is exact on every machine."""
        words = np.random.Philox(key=int.from_bytes(context[:16], "little")).random_raw(
            weights.hidden + weights.vocabulary
        )
        signs_and_low = (words[: weights.hidden] & np.uint64(0x80FF)).astype(np.uint16)
        uniform_V = (words[weights.hidden :] >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        logits_V = uniform_V * np.float32(8) - np.float32(4)
        ends = sorted(token for token in self._policy.eos_ids if token < weights.vocabulary)
        if ends:
            logits_V[ends] += np.float32(math.log(weights.vocabulary / (MEAN_TOKENS * len(ends))))
        return _Look(signs_and_low | np.uint16(0x3F00), logits_V / np.float32(self._policy.temperature))

    def _loaded(self) -> _Weights:
        if self._weights is None:
            raise EngineError("no model is loaded")
        return self._weights


def _context(weights: _Weights, prompt: Sequence[int]) -> bytes:
    return hashlib.sha256(weights.digest + np.array(prompt, "<u4").tobytes()).digest()


def _longer(context: bytes, token: int) -> bytes:
    return hashlib.sha256(context + token.to_bytes(4, "little")).digest()


def _noise(seed: bytes, row: int, count: int, vocabulary: int) -> npt.NDArray[np.float32]:
    try:
        return noise(seed, [row] * count, range(count), vocabulary)
    except HashingError as error:
        raise EngineError(f"noise of row {row}: {error}") from error


def _require_ids(weights: _Weights, lists: Sequence[tuple[int, ...]]) -> None:
    if not all(ids and min(ids) >= 0 and max(ids) < weights.vocabulary for ids in lists):
        raise EngineError(f"a prompt or output is empty, or has a token outside the {weights.vocabulary} of the model")
