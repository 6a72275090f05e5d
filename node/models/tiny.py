"""The built-in `tiny` model: a Llama of 0.8M random weights with a byte-level tokenizer, the same bytes everywhere.

It knows nothing; it is there so that a whole network runs in seconds, and can learn simple rewards. Shape and
initialisation are those with which GRPO was seen to learn: hidden 128, 4 layers, 4 heads, FFN 352, tied, init 0.02.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from node.models.cache import Say, cached
from node.models.tensors_file import bfloat16_bits, write_bfloat16
from node.models.tokenizer_file import byte_letters, byte_level, write_json, write_tokenizer

HIDDEN, LAYERS, HEADS, FFN = 128, 4, 4, 352
INIT_STD = 0.02  # Llama's initializer_range
MAX_POSITIONS = 2048
ROPE_THETA = 10_000.0

BOS, EOS, PAD = 0, 1, 2
SPECIALS = ("<|bos|>", "<|eos|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|6|>", "<|7|>")
FIRST_BYTE = len(SPECIALS)  # byte b is id FIRST_BYTE + b
VOCABULARY = FIRST_BYTE + 256

CHAT_TEMPLATE = (
    "{{ '<|bos|>' }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|eos|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

DIGESTS = {  # SHA-256 of what this module writes
    "chat_template.jinja": "abace8ed55e8cfeb9fa102c33d2dd9e7392181582da576dac078c5ec82524517",
    "config.json": "ded8f89b65505e90d139f9f9279699ecc18dc72d607249605cb2913ec623a411",
    "generation_config.json": "407e309076e3a2b1ebbfc51a2e3388ba44c4dad59bf906b7b23b6b4791f5489e",
    "model.safetensors": "faccf1e33d82e3f10369e4a766caffdf2cea2e38c77ebb358a2ac6560c7c02bb",
    "tokenizer.json": "767353f3a67b64161e20648074aeba802089a017a36bb8162aca3f5810a02e93",
    "tokenizer_config.json": "9e0b7783d652350e3cd7920ff466adb5eca3ae00724055823f891c8e79265d36",
}

_UNIFORMS = 12  # their sum has variance 1 in units of one uniform's range: an old, exactly summable normal


def tiny(cache: Path, say: Say) -> Path:
    """The cached folder of seed 0, built if it is not there.

    Raises:
        StoreError: the disk refused.
    """
    return cached(cache, "tiny", DIGESTS, build_tiny, say)


def build_tiny(folder: Path, seed: int = 0) -> None:
    """Writes the model of `seed` into `folder`. Another seed is another model with the same tokenizer and config."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: _weights(name, shape, seed) for name, shape in shapes().items()}
    write_bfloat16(folder / "model.safetensors", tensors)
    vocabulary = [*SPECIALS, *byte_letters()]
    write_tokenizer(folder / "tokenizer.json", vocabulary, (), range(FIRST_BYTE), byte_level(use_regex=False))
    (folder / "chat_template.jinja").write_bytes(CHAT_TEMPLATE.encode())
    write_json(folder / "config.json", _config())
    write_json(folder / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD})
    write_json(
        folder / "tokenizer_config.json",
        {
            "bos_token": SPECIALS[BOS],
            "clean_up_tokenization_spaces": False,
            "eos_token": SPECIALS[EOS],
            "model_max_length": MAX_POSITIONS,
            "pad_token": SPECIALS[PAD],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights; the output layer is the embedding's."""
    layer = {
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.k_proj": (HIDDEN, HIDDEN),
        "self_attn.v_proj": (HIDDEN, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "mlp.gate_proj": (FFN, HIDDEN),
        "mlp.up_proj": (FFN, HIDDEN),
        "mlp.down_proj": (HIDDEN, FFN),
    }
    layers = {f"model.layers.{i}.{part}.weight": shape for i in range(LAYERS) for part, shape in layer.items()}
    return {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), **layers, "model.norm.weight": (HIDDEN,)}


def _weights(name: str, shape: tuple[int, ...], seed: int) -> npt.NDArray[np.uint16]:
    """Ones for norms, else normal values from SHAKE-128 of seed and name, by integer sums: the same everywhere."""
    if len(shape) == 1:
        return bfloat16_bits(np.ones(shape, dtype=np.float32))
    count = int(np.prod(shape))
    stream = hashlib.shake_128(f"tiny/{seed}/{name}".encode()).digest(count * _UNIFORMS * 2)
    sums = np.frombuffer(stream, "<u2").reshape(count, _UNIFORMS).sum(axis=1, dtype=np.int64)
    centred = 2 * sums - _UNIFORMS * (2**16 - 1)  # twice the deviation from the mean
    return bfloat16_bits((centred * (INIT_STD / 2**17)).astype(np.float32)).reshape(shape)


def _config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": BOS,
        "dtype": "bfloat16",
        "eos_token_id": EOS,
        "head_dim": HIDDEN // HEADS,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": INIT_STD,
        "intermediate_size": FFN,
        "max_position_embeddings": MAX_POSITIONS,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": HEADS,
        "pad_token_id": PAD,
        "rms_norm_eps": 1e-5,
        "rope_theta": ROPE_THETA,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": VOCABULARY,
    }
