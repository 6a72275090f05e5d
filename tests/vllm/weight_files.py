"""Models whose weights are changed: on disk as a file, and in an engine as a patch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from node.engines.changes import Change

# Apart from the tiny model in what vLLM treats apart: an output layer of its own, biases, fewer heads of keys and
# values, a vocabulary that is no multiple of 64.
UNTIED = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 128,
    "intermediate_size": 192, "max_position_embeddings": 1024, "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "use_sliding_window": False, "vocab_size": 300, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


def build_untied(folder: Path, seed: int) -> None:
    """Writes a model of random weights of `UNTIED` into `folder`."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(UNTIED))
    random = torch.Generator().manual_seed(seed)
    shapes = {"model.embed_tokens.weight": (300, 128), "lm_head.weight": (300, 128), "model.norm.weight": (128,)}
    for layer in range(2):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.{norm}_layernorm.weight": (128,) for norm in ("input", "post_attention")}
        for part, rows in (("q", 128), ("k", 64), ("v", 64)):
            shapes |= {f"{at}.self_attn.{part}_proj.weight": (rows, 128), f"{at}.self_attn.{part}_proj.bias": (rows,)}
        shapes |= {f"{at}.self_attn.o_proj.weight": (128, 128), f"{at}.mlp.down_proj.weight": (128, 192)}
        shapes |= {f"{at}.mlp.{part}_proj.weight": (192, 128) for part in ("gate", "up")}
    tensors = {
        name: (0.04 * torch.randn(shape, generator=random) + ("norm" in name)).bfloat16()
        for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def change(folder: Path, name: str, size: float = 0.3) -> Change:
    """New values, normal of `size`, for the first, the last and a third of the others of a tensor."""
    count = load_file(folder / "model.safetensors")[name].numel()
    random = np.random.default_rng(0)
    indices = np.union1d(random.choice(count, count // 3, replace=False), [0, count - 1]).astype(np.int64)
    values = torch.from_numpy(random.normal(0, size, len(indices)).astype(np.float32)).bfloat16()
    return Change(name, random.permutation(indices), values.view(torch.int16).numpy().view(np.uint16))


def changed(folder: Path, target: Path, *changes: Change) -> Path:
    """A copy of the model with the changes."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    for each in changes:
        bits = tensors[each.name].view(torch.int16).numpy().view(np.uint16).reshape(-1)
        bits[each.indices] = each.values
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    return target


def in_two_files(folder: Path, target: Path) -> Path:
    """A copy of the model whose tensors are in two files."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    for number, names in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2]), start=1):
        save_file({name: tensors[name] for name in names}, target / f"model-{number}.safetensors", {"format": "pt"})
    return target
