"""What a model folder stores, before anything of it is loaded: its configuration, and which tensors its files hold."""

from __future__ import annotations

from pathlib import Path

from pydantic_core import from_json

from node.errors import EngineError, Malformed
from node.tensors import read_tensors

# Models whose logits are the output layer of the last hidden state, nothing after it, and whose attention is plain.
ARCHITECTURES = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
MAX_CONFIG_BYTES = 1 << 20
Shapes = dict[str, tuple[int, ...]]


def read_config(folder: Path) -> bytes:
    """The exact bytes of the folder's config.json, whose model can be run here.

    Raises:
        EngineError: there is none, it asks for code of its own, or for an architecture that is not supported.
    """
    try:
        with (folder / "config.json").open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
        if len(data) > MAX_CONFIG_BYTES:
            raise EngineError(f"{folder}/config.json: over {MAX_CONFIG_BYTES} bytes, which is the most that is read")
        config = from_json(data)
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError(f"{folder}: no usable config.json: {error}") from error
    if not isinstance(config, dict):
        raise EngineError(f"{folder}: no usable config.json: it holds no JSON object")
    if "auto_map" in config:
        raise EngineError(f"{folder}: the configuration asks for code of its own (auto_map), which is never run")
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or names[0] not in ARCHITECTURES:
        raise EngineError(f"{folder}: architecture {names} is not one of {', '.join(sorted(ARCHITECTURES))}")
    if config.get("quantization_config") is not None:
        raise EngineError(f"{folder}: quantized weights are not supported: a run's weights are bfloat16")
    if _looks_back_so_far_only(config):
        raise EngineError(
            f"{folder}: sliding-window attention is not supported: engines differ in what they make of it"
        )
    return data


def _looks_back_so_far_only(config: dict[str, object]) -> bool:
    """Whether some layer sees only a window of what came before: Qwen's say with a name of its own that none does.

    Mistral's know no such name, and have a window of 4,096 where none is named.
    """
    layers = config.get("layer_types") or []
    if not isinstance(layers, list) or any(layer != "full_attention" for layer in layers):
        return True
    if config["architectures"] == ["MistralForCausalLM"]:
        return config.get("sliding_window", 4096) is not None
    return config.get("sliding_window") is not None and config.get("use_sliding_window", True) is not False


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The folder's safetensors files, by name."""
    return tuple(sorted(folder.glob("*.safetensors")))


def stored_shapes(folder: Path) -> Shapes:
    """Names and shapes of the tensors in the folder's safetensors files, all of them bfloat16.

    Raises:
        EngineError: a file cannot be read, a tensor is there twice or of another type.
    """
    found: Shapes = {}
    try:
        for path in weight_files(folder):
            for tensor in read_tensors(path):
                if tensor.name in found or tensor.dtype != "BF16":
                    raise EngineError(f"{path}: {tensor.name} is there twice, or is {tensor.dtype} instead of BF16")
                found[tensor.name] = tensor.shape
    except (OSError, Malformed) as error:
        raise EngineError(f"{folder}: weights cannot be read: {error}") from error
    return found
