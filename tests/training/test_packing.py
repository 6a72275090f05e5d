import random

import pytest
import torch
from transformers import AutoModelForCausalLM

from node.training.packing import Output, Strip, pack, strips_of


def outputs_of_lengths(*lengths):
    return [Output(tuple(range(length)), advantage=float(length)) for length in lengths]


def test_outputs_fill_strips_first_fit_longest_first():
    # a prompt of 4; an output of n adds n - 1. 4+6=10 | then 4: 10+3 > 12, new strip 4+3=7 | 3: 10+2=12 fits | 2: 7+1=8
    strips = strips_of((1, 2, 3, 4), outputs_of_lengths(3, 7, 2, 4), max_tokens=12)

    assert [[len(output.ids) for output in strip.outputs] for strip in strips] == [[7, 3], [4, 2]]
    assert [strip.length for strip in strips] == [12, 8]


def test_an_output_over_the_budget_has_a_strip_and_a_micro_batch_of_its_own():
    strips = strips_of((1, 2), outputs_of_lengths(50, 3), max_tokens=10)
    batches = pack(strips, max_tokens=10)

    assert [tuple(batch.input_ids.shape) for batch in batches] == [(1, 51), (1, 4)]


def test_micro_batches_stay_within_the_padded_budget_and_lose_no_token():
    rng = random.Random(2)
    strips = [Strip((1,) * rng.randint(1, 9), tuple(outputs_of_lengths(rng.randint(1, 20)))) for _ in range(40)]

    batches = pack(strips, max_tokens=64)

    assert all(batch.input_ids.numel() <= 64 for batch in batches)
    assert sum(batch.tokens for batch in batches) == sum(len(strip.outputs[0].ids) for strip in strips)


def test_a_strip_by_hand():
    (batch,) = pack([Strip((5, 6), (Output((7, 8, 9), 1.0), Output((3, 4), -1.0)))], max_tokens=99)

    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 3]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 2]]
    assert batch.columns.tolist() == [1, 2, 3, 1, 4]
    assert batch.targets.tolist() == [7, 8, 9, 3, 4]
    assert batch.advantages.tolist() == [1.0, 1.0, 1.0, -1.0, -1.0]
    assert batch.mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],  # the second output does not see the first
    ]


def test_no_mask_is_built_where_every_strip_has_one_output():
    (batch,) = pack([Strip((5, 6), (Output((7, 8), 1.0),)), Strip((5,), (Output((7,), 1.0),))], max_tokens=99)

    assert batch.mask is None
    assert batch.input_ids.tolist() == [[5, 6, 7], [5, 0, 0]]


@pytest.mark.parametrize("max_tokens", [1, 12, 20, 500])
def test_packed_logits_are_those_of_each_rollout_alone(base, max_tokens):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    rng = random.Random(3)
    prompts = [tuple(rng.randrange(64) for _ in range(size)) for size in (5, 2)]
    outputs = [[tuple(rng.randrange(64) for _ in range(n)) for n in (6, 1, 3)] for _ in prompts]
    expected = {}
    for prompt, group in zip(prompts, outputs, strict=True):
        for ids in group:
            logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
            expected[prompt, ids] = torch.log_softmax(logits, -1)[torch.arange(len(ids)), torch.tensor(ids)].detach()

    strips = []
    for prompt, group in zip(prompts, outputs, strict=True):
        strips += strips_of(prompt, [Output(ids, 1.0) for ids in group], max_tokens)
    found = []
    for batch in pack(strips, max_tokens):
        logits = model(batch.input_ids, position_ids=batch.positions, attention_mask=batch.mask).logits
        logprobs = torch.log_softmax(logits[batch.rows, batch.columns], -1)
        found.append(logprobs[torch.arange(batch.tokens), batch.targets].detach())

    order = sorted(strips, key=lambda strip: -strip.length)
    wanted = [expected[strip.prompt_ids, output.ids] for strip in order for output in strip.outputs]
    torch.testing.assert_close(torch.cat(found), torch.cat(wanted), rtol=1e-4, atol=1e-5)
