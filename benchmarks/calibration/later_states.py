"""States that training takes the built-in `tiny` model through, so that its calibration holds for a whole run.

Random weights give nearly flat logits and almost no noise; learned ones give larger logits and more. Supervised steps
on the residues task move the model as reinforcement does, and faster.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

from node.launch import preset
from node.tasks.taskset import describe, load_tasks
from node.tasks.tokenizer import load_tokenizer

KEPT = (10, 30, 100)  # steps after which a state is kept
ROWS, TOKENS = 32, 32
LEARNING_RATE = 1e-3  # the preset's


def later_states(folder: Path, scratch: Path) -> dict[str, Path]:
    """Folders of the model of `folder` after 10, 30 and 100 steps, by name; the same ones on every call."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(0)
    prompts, classes = _items(folder)
    states = {}
    for step in range(1, max(KEPT) + 1):
        chosen = torch.randint(len(prompts), (ROWS,), generator=generator)
        target = torch.randint(4, 64, (ROWS, TOKENS), generator=generator) * 4 + classes[chosen, None]
        logits = model(torch.cat([prompts[chosen], target], dim=1)).logits[:, prompts.shape[1] - 1 : -1]
        loss = cross_entropy(logits.reshape(target.numel(), -1), target.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step in KEPT:
            states[f"step{step}"] = _saved(model, folder, scratch / f"step{step}")
    return states


def _items(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    chosen, tokenizer = preset("tiny"), load_tokenizer(folder)
    spec = describe(chosen.task, chosen.config, tokenizer, chosen.max_prompt_tokens)
    tasks = load_tasks([spec], tokenizer, chosen.max_prompt_tokens)
    items = [tasks.item(index) for index in range(tasks.size)]
    return torch.tensor([item.prompt_ids for item in items]), torch.tensor([int(item.answer) for item in items])


def _saved(model: torch.nn.Module, folder: Path, target: Path) -> Path:
    """A copy of `folder` with the model's present weights, in the tensors and types that it had."""
    shutil.copytree(folder, target)
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in model.named_parameters()}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target
