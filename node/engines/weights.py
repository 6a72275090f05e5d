"""From a model folder to a model in memory: what may be loaded, and swapping weights in place without ever mixing two.

Only safetensors are read, names, shapes and types must be exactly the model's, and no code of a folder is run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from node import widening
from node.engines.cache import ATTENTION, attention
from node.engines.changes import Change
from node.engines.stored import Shapes, read_config, require_sizes, stored_shapes, weight_files
from node.errors import EngineError

# What libraries raise for files and configurations that are not what they should be.
BUILD_ERRORS = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError, SafetensorError,
    ArithmeticError,  # sizes of 0
    AssertionError,  # torch, of a device that it is not built for
)  # fmt: skip


def build(folder: Path, device: torch.device) -> Any:
    """The model of `folder` with its weights, in bfloat16, ready for `cache.attention`.

    Raises:
        EngineError: it cannot be built, or its weights are not exactly what its configuration asks for.
    """
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    require_sizes(folder, read_config(folder), stored_shapes(folder))
    transformers.AttentionInterface.register(ATTENTION, attention)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            skeleton = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION)
        require_plain_attention(skeleton)
        require_tensors(folder, shapes(skeleton))
        with quiet_loading():
            model = type(skeleton).from_pretrained(
                None,
                config=config,
                state_dict=dict(stored_tensors(folder, shapes(skeleton))),
                dtype=torch.bfloat16,
                attn_implementation=ATTENTION,
            )
        model.to(device).eval().requires_grad_(False)
        own_memory(model)
        if device.type == "cpu" and widening.NEEDED:
            widening.widen(model)
    except (*BUILD_ERRORS, StrictDataclassError) as error:
        raise EngineError(f"{folder}: the model could not be built: {error}") from error
    return model


def swap(model: Any, folder: Path) -> None:
    """Copies the weights of `folder` into `model`, in place. Everything that can be checked is checked before.

    Raises:
        EngineError: the weights do not fit, and `model` is untouched.
        OSError, SafetensorError, RuntimeError: reading failed midway: `model` may be a mix and must be dropped.
    """
    parameters = dict(model.named_parameters())
    require_tensors(folder, shapes(model))
    with torch.no_grad():
        for name, tensor in stored_tensors(folder, shapes(model)):
            parameters[name].copy_(tensor)


def patch(model: Any, changes: Sequence[Change]) -> None:
    """Writes changes, which fit, into `model`. Raises: RuntimeError: failed midway: it may be a mix."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for change in changes:
            parameter = parameters[change.name]
            values_N = torch.from_numpy(change.values.view("int16")).view(torch.bfloat16)
            parameter.view(-1)[torch.from_numpy(change.indices).to(parameter.device)] = values_N.to(parameter.device)


def own_memory(model: Any) -> None:
    """Copies weights that are mapped from their file: a file that changes or shrinks must not reach a live model."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.device.type == "cpu":
                parameter.data = parameter.data.clone()


def shapes(model: Any) -> Shapes:
    """Names and shapes of the model's own tensors; one that is tied to another is not counted again."""
    return {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}


def require_tensors(folder: Path, wanted: Shapes) -> None:
    """Raises EngineError unless the folder's safetensors hold exactly the `wanted` tensors, in bfloat16."""
    found = stored_shapes(folder)
    wrong = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    if wrong:
        name = wrong[0]
        raise EngineError(
            f"{folder}: {len(wrong)} tensors are not those of the configuration; first {name[:80]}: "
            f"found {found.get(name, 'none')}, wanted {wanted.get(name, 'none')}"
        )


def stored_tensors(folder: Path, wanted: Shapes) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of the folder's safetensors files, whichever of them an index names; mapped from their file.

    Raises:
        OSError, SafetensorError: a file cannot be read.
        RuntimeError: they are not exactly the `wanted` ones, in bfloat16: files have changed since they were checked.
    """
    missing = dict(wanted)
    for path in weight_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 -- safe_open is not iterable
                tensor = file.get_tensor(name)
                if missing.pop(name, None) != tuple(tensor.shape) or tensor.dtype != torch.bfloat16:
                    raise RuntimeError(f"{path}: {name} is not what it was a moment ago")
                yield name, tensor
    if missing:
        raise RuntimeError(f"{folder}: {len(missing)} tensors are gone, {min(missing)} is one")


def require_plain_attention(model: Any) -> None:
    """Raises EngineError if a layer looks only at a window of what came before: Mistral's ask the configuration."""
    windows = [getattr(of, "sliding_window", None) for of in (model.config, *model.modules())]
    if any(window is not None for window in windows):
        raise EngineError("sliding-window attention is not supported")


def digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 in hex over names, shapes and bytes of live weights, which come in order of their names."""
    result = hashlib.sha256()
    for name, tensor in tensors:
        result.update(f"{name} {tuple(tensor.shape)}\n".encode())
        result.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return result.hexdigest()


def quiet_loading() -> ExitStack:
    """Within it, transformers draws no progress bar of its own."""
    from transformers.utils import logging

    stack = ExitStack()
    if logging.is_progress_bar_enabled():
        logging.disable_progress_bar()
        stack.callback(logging.enable_progress_bar)
    return stack
