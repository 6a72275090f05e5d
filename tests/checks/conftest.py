"""A small run, an honest submission to it, and what an honest replay of that says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest

from hashing import merkle
from hashing.assignment import item_index
from hashing.proof import build_proofs
from ledger.base import Address, Digest, RunId, Version
from node.checks.base import Claim, Subject
from node.rollouts.assignment import file_units
from node.rollouts.file import preimage
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH, Replay, Rollout
from node.runspec import RunSpec

HIDDEN, EOS = 256, 2
CHECKED = [6, 40, 35, 40]  # output tokens of the four leaves; 35 leaves a last chunk of 3
TAIL = [(0.0, 0.5), (0.1, 0.1), (0.25, 0.01), (0.5, 0.0001)]


@dataclass(frozen=True)
class Prompt:
    prompt_ids: tuple[int, ...]


class Counting:
    """Item i is the prompt (i, 7); an answer scores the share of its tokens that are i."""

    def item(self, index: int) -> Prompt:
        return Prompt((index, 7))

    def score(self, index: int, output_ids: Sequence[int], finish: int) -> float:
        return output_ids.count(index) / len(output_ids)


def bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def spec_of_run() -> RunSpec:
    digest = "0" * 64
    files = dict.fromkeys(("manifest_root", "config", "tokenizer", "chat_template", "generation_config"), digest)
    return RunSpec.model_validate(
        {
            "protocol": 1,
            "name": "checks",
            "model": {
                "architecture": "LlamaForCausalLM", **files, "dtype": "bfloat16", "vocabulary": 1000, "eos_ids": [EOS],
            },
            "sampling": {"temperature": 1.0, "max_prompt_tokens": 8, "max_output_tokens": 40},
            "tasks": [
                {
                    "name": "counting", "version": 1, "config": {}, "size": 500, "dataset_digest": digest,
                    "scorer_version": 1, "fuel_limit": 100,
                }
            ],
            "slot": {"groups": 2, "group_size": 2},
            "proof": {
                "chunk": 32, "top_k": 128, "exponent_mismatches": 20, "mantissa_mean": 5.0, "mantissa_median": 4.0,
                "logprob_mean_error": 0.1, "logprob_max_error": 0.5,
            },
            "sampling_test": {"tail": TAIL, "suspect": 1e5, "alarm": 1e9},
            "audit": {"leaves": 4},
            "units": {"w_prompt": 1, "w_output": 4, "w_attention": 2, "max_units": 100_000},
            "async_level": 2,
            "max_provider_share": 1.0,
            "max_steps": 10,
            "economics": {
                **dict.fromkeys(("price_per_unit", "submission_bond", "fault_bond", "penalty"), "1"),
                "max_open": 4, "checkpoint_interval": 1, "trainer_delay": 1,
            },
            "windows": dict.fromkeys(("available", "audit", "settle_by", "confirm", "contest", "panel", "grace"), 10),
        }
    )  # fmt: skip


def rollout_of(leaf: int, item: int, rng: np.random.Generator, states: npt.NDArray[np.float32]) -> Rollout:
    tokens = len(states)
    output = [int(token) for token in rng.integers(10, 1000, tokens)]
    if leaf % 2 == 0:
        output[-1] = EOS
    return Rollout(
        group=leaf // 2,
        index=leaf % 2,
        prompt_ids=(item, 7),
        output_ids=tuple(output),
        logprobs=tuple(float(np.float32(value)) for value in -rng.random(tokens)),
        proofs=build_proofs(bfloat16(states)),
        finish=FINISH_EOS if leaf % 2 == 0 else FINISH_LENGTH,
        reward=float(np.float32(output.count(item) / tokens)),
    )


@dataclass(frozen=True)
class Case:
    """A submission, and a replay of each of its leaves."""

    subject: Subject
    replays: dict[int, Replay]

    @property
    def preimages(self) -> list[bytes]:
        rollouts = self.subject.rollouts
        return [preimage(rollout, leaf, len(rollouts)) for leaf, rollout in enumerate(rollouts)]


def committed(subject: Subject, rollouts: Sequence[Rollout]) -> Subject:
    """`subject` with other rollouts, and the root and units that commit them."""
    hashes = [merkle.leaf_hash(preimage(rollout, leaf, len(rollouts))) for leaf, rollout in enumerate(rollouts)]
    root, units = Digest(merkle.root(hashes)), file_units(rollouts, subject.spec)
    return replace(subject, claim=replace(subject.claim, root=root, units=units), rollouts=tuple(rollouts))


@pytest.fixture(scope="session")
def case() -> Case:
    rng = np.random.default_rng(5)
    spec = spec_of_run()
    claim = Claim(
        chain_id=31337, contract=Address("0x" + "11" * 20), run=RunId(7), spec_digest=spec.digest,
        manifest_root=Digest(b"\x33" * 32), node=Address("0x" + "44" * 20), version=Version(3), slot=2,
        root=Digest(bytes(32)), units=0, beacon=Digest(b"\x55" * 32),
    )  # fmt: skip
    empty = Subject(spec, claim, (), Counting())
    items = [item_index(empty.seed, group, 500) for group in (0, 1)]
    states = [rng.standard_normal((tokens, HIDDEN)).astype(np.float32) for tokens in CHECKED]
    rollouts = [rollout_of(leaf, items[leaf // 2], rng, rows) for leaf, rows in enumerate(states)]
    return Case(
        committed(empty, rollouts),
        {leaf: honest_replay(rollouts[leaf], rows, rng) for leaf, rows in enumerate(states)},
    )


def honest_replay(rollout: Rollout, states: npt.NDArray[np.float32], rng: np.random.Generator) -> Replay:
    """Another engine's view: states 0.3% off, log-probabilities 0.01 nats, every token the seeded choice."""
    tokens = len(states)
    noisy = states * (1 + 0.003 * rng.standard_normal(states.shape).astype(np.float32))
    return Replay(
        hidden_bits=bfloat16(noisy),
        logprobs=np.minimum(np.array(rollout.logprobs, dtype=np.float32) + np.float32(0.01), np.float32(0)),
        gaps=rng.exponential(1.0, tokens).astype(np.float32),
        deficits=np.zeros(tokens, dtype=np.float32),
    )


Alter = Callable[..., Subject]


@pytest.fixture(scope="session")
def alter(case: Case) -> Alter:
    """alter(leaf, **changes): the submission with one rollout changed, committed as it is."""

    def altered(leaf: int, **changes: object) -> Subject:
        rollouts = list(case.subject.rollouts)
        rollouts[leaf] = replace(rollouts[leaf], **changes)  # type: ignore[arg-type]
        return committed(case.subject, rollouts)

    return altered
