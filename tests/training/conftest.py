"""A small Llama on disk, and groups of rollouts for it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ledger.base import Address, Digest, Version
from node.rollouts.rollout import FINISH_LENGTH, Rollout
from node.training.batch import TrainingGroup

MakeGroup = Callable[..., TrainingGroup]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """A second one costs more than it brings at this size."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """hidden 64, 2 layers, vocabulary 64, tied, bfloat16; beside it a small file that is not a weight."""
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(b'{"words": []}\n')
    return folder


@pytest.fixture
def make_group() -> MakeGroup:
    def make(
        rewards: Sequence[float],
        prompt: Sequence[int] = (1, 2, 3),
        outputs: Sequence[Sequence[int]] = (),
        commitment: int = 1,
        group: int = 0,
        version: int = 0,
        provider: str = "0xA",
    ) -> TrainingGroup:
        """Without `outputs`, rollout k says (10 + k, 20 + k, 30 + k)."""
        said = outputs or [(10 + k, 20 + k, 30 + k) for k in range(len(rewards))]
        rollouts = tuple(
            Rollout(group, k, tuple(prompt), tuple(ids), (0.0,) * len(ids), (), FINISH_LENGTH, reward)
            for k, (ids, reward) in enumerate(zip(said, rewards, strict=True))
        )
        return TrainingGroup(
            Digest(commitment.to_bytes(32, "big")),
            Address(provider),
            Version(version),
            group,
            rollouts,
            tuple(rewards),
        )

    return make
