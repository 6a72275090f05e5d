"""The whole loop on a random model: sample from what was exported, score, step, export again."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from node.training.batch import BatchRule
from node.training.hyper import TINY
from node.training.step import Learner

FIRST_FREE, CLASSES, VOCABULARY = 16, 4, 256
GROUPS, GROUP_SIZE, OUTPUT_TOKENS, STEPS = 8, 16, 16, 25


@pytest.fixture
def tiny(tmp_path):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        eos_token_id=None,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "v0")
    return tmp_path


def prompt_of(rng):
    return (0, 2 + rng.randrange(CLASSES), *(rng.randrange(FIRST_FREE, VOCABULARY) for _ in range(4)))


def sample(folder, prompts, seed):
    """`OUTPUT_TOKENS` tokens behind each prompt, at temperature 1."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    ids = torch.tensor(prompts)
    torch.manual_seed(seed)
    options = {"max_new_tokens": OUTPUT_TOKENS, "do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, ids.shape[1] :].tolist()


def score(prompt, output):
    return sum(token >= FIRST_FREE and token % CLASSES == prompt[1] - 2 for token in output) / len(output)


def mean_score(folder):
    rng = random.Random(1)
    prompts = [prompt_of(rng) for _ in range(128)]
    return sum(map(score, prompts, sample(folder, prompts, seed=999))) / 128


def test_a_tiny_model_learns_the_residues_of_its_prompts(tiny, make_group):
    """By chance a quarter of its tokens (240 of 256 ids count) are right; the standard error here is under 0.02."""
    rng = random.Random(0)
    learner = Learner(tiny / "v0", TINY, temperature=1.0, threads=1)
    rule = BatchRule(GROUPS * GROUP_SIZE, GROUP_SIZE, async_level=0, max_provider_share=1.0)
    before = mean_score(tiny / "v0")

    for step in range(STEPS):
        prompts = [prompt_of(rng) for _ in range(GROUPS)]
        outputs = sample(tiny / f"v{step}", [p for p in prompts for _ in range(GROUP_SIZE)], seed=step)
        groups = []
        for k, prompt in enumerate(prompts):
            said = outputs[k * GROUP_SIZE : (k + 1) * GROUP_SIZE]
            rewards = [score(prompt, output) for output in said]
            groups.append(make_group(rewards, prompt, said, commitment=step, group=k, version=step))
        batch = rule.select(groups, learner.consumed, learner.version + 1)
        assert learner.step(batch, lambda done, total: None).skipped is None
        learner.export(tiny / f"v{step + 1}")

    after = mean_score(tiny / f"v{STEPS}")
    assert before < 0.28
    assert after > 0.35
