"""What a model folder stores, before anything of it is loaded: its configuration, and which tensors its files hold."""

from __future__ import annotations

from pathlib import Path

from pydantic_core import from_json

from node.errors import EngineError, Malformed
from node.tensors import read_tensors

# Models whose logits are the output layer of the last hidden state, nothing after it, and whose attention is plain.
# Libraries build by one name or by the other: both must say the same.
ARCHITECTURES = {
    "LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}  # fmt: skip
# What one library heeds and another does not, and the values that change nothing, beside none at all.
UNHEEDED: dict[str, tuple[object, ...]] = {
    "logit_scale": (1, 1.0), "logits_scaling": (1, 1.0), "embedding_multiplier": (1, 1.0), "qk_norm": (False,),
    "is_causal": (True,), "is_encoder_decoder": (False,), "hidden_act": ("silu",), "dual_chunk_attention_config": (),
    "speculators_config": (), "text_config": (), "transformers_weights": (), "quantization_config": (),
}  # fmt: skip
MAX_CONFIG_BYTES = 1 << 20
MAX_POSITIONS = 1 << 22  # tables of which are made when a model is built
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
    _require_supported(folder, config)
    return data


def _require_supported(folder: Path, config: dict[str, object]) -> None:
    """Raises EngineError for what is not run here, or not alike by all engines."""
    if "auto_map" in config:
        raise EngineError(f"{folder}: the configuration asks for code of its own (auto_map), which is never run")
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise EngineError(f"{folder}: architecture {str(names)[:80]} is not one of {', '.join(sorted(ARCHITECTURES))}")
    if config.get("model_type") != ARCHITECTURES[name]:
        raise EngineError(f"{folder}: model_type of {name} is not {ARCHITECTURES[name]!r}")
    for name, harmless in UNHEEDED.items():
        if config.get(name) is not None and config[name] not in harmless:
            raise EngineError(f"{folder}: {name} = {str(config[name])[:80]} is not supported: engines differ in it")
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or not 0 < positions <= MAX_POSITIONS:
        raise EngineError(
            f"{folder}: max_position_embeddings is {str(positions)[:80]}: a number up to {MAX_POSITIONS} is needed"
        )
    if _looks_back_so_far_only(config):
        raise EngineError(
            f"{folder}: sliding-window attention is not supported: engines differ in what they make of it"
        )


def require_sizes(folder: Path, config: bytes, shapes: Shapes) -> None:
    """Raises EngineError unless what is stored is as large as `config` says: before a model of that size is built."""
    said = from_json(config)
    hidden, layers = said.get("hidden_size"), said.get("num_hidden_layers")
    wanted = {
        "model.embed_tokens.weight": (said.get("vocab_size"), hidden),
        "model.layers.0.mlp.gate_proj.weight": (said.get("intermediate_size"), hidden),
    }
    found = {name: shapes.get(name) for name in wanted}
    stored = len({name.split(".")[2] for name in shapes if name.startswith("model.layers.")})
    if found != wanted or stored != layers:
        raise EngineError(
            f"{folder}: the configuration says {wanted} in {str(layers)[:20]} layers, stored are {found} in {stored}"
        )


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
