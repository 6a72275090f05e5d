"""What a model folder is, in values that a run's specification can name; nothing in the folder is ever executed.

Digests are SHA-256 over the exact bytes of a file; one that the folder does not have counts as empty bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from pydantic_core import from_json

from node.errors import Malformed
from node.tensors import TensorEntry, read_tensors

MAX_JSON_BYTES = 64 * 2**20  # tokenizer.json of the largest vocabularies is about 35 MB
MAX_EOS_IDS = 16  # RunSpec's limit
MAX_VOCABULARY = 2**24
OUTPUT_LAYER, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts of a model folder. Digests are SHA-256 in hex; `vocabulary` is the number of logits."""

    architecture: str
    dtype: str
    vocabulary: int
    hidden: int
    eos_ids: tuple[int, ...]
    config: str
    tokenizer: str
    chat_template: str
    generation_config: str


def model_facts(folder: Path) -> ModelFacts:
    """The facts of `folder`, after `require_model_folder`.

    Raises:
        Malformed: not a usable model folder, or one of its files is not what its name says.
        OSError: a file could not be read.
    """
    config = require_model_folder(folder)
    table = tensor_table(folder)
    output = table.get(OUTPUT_LAYER) or table.get(EMBEDDING)
    if output is None or len(output.shape) != 2:
        raise Malformed(f"{folder}: the weights have neither {OUTPUT_LAYER} nor {EMBEDDING} as a matrix")
    generation = _json_object(folder / "generation_config.json") if _has(folder, "generation_config.json") else {}
    return ModelFacts(
        architecture=_architecture(folder, config),
        dtype=str(config.get("dtype", config.get("torch_dtype", "unknown"))),
        vocabulary=output.shape[0],
        hidden=output.shape[1],
        eos_ids=_eos_ids(folder, generation.get("eos_token_id", config.get("eos_token_id"))),
        config=_sha256(folder / "config.json"),
        tokenizer=_sha256(folder / "tokenizer.json"),
        chat_template=hashlib.sha256(_template(folder)).hexdigest(),
        generation_config=_sha256(folder / "generation_config.json"),
    )


def require_model_folder(folder: Path) -> dict[str, Any]:
    """The parsed config.json of a folder that can be used: weights only as safetensors, and no code of its own.

    Raises:
        Malformed: a file is missing, config.json is not JSON, or the model wants code of its own to be run.
        OSError: a file could not be read.
    """
    if not folder.is_dir():
        raise Malformed(f"{folder} is not a folder")
    for name in ("config.json", "tokenizer.json"):
        if not _has(folder, name):
            raise Malformed(f"{folder} has no {name}: it is not a model folder that can be used here")
    if not weight_files(folder):
        raise Malformed(f"{folder} has no weights as .safetensors; other formats can run code and are never loaded")
    config = _json_object(folder / "config.json")
    tokenizer = _json_object(folder / "tokenizer_config.json") if _has(folder, "tokenizer_config.json") else {}
    if "auto_map" in config or "auto_map" in tokenizer:
        raise Malformed(f"{folder} asks for code of its own (auto_map); such models are never loaded")
    return config


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a model folder, by name."""
    return tuple(sorted(path for path in folder.glob("*.safetensors") if path.is_file()))


def tensor_table(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of the folder's weight files.

    Raises:
        Malformed: not safetensors, or a name is in two files.
    """
    table: dict[str, TensorEntry] = {}
    for path in weight_files(folder):
        header = {entry.name: entry for entry in read_tensors(path)}
        twice = table.keys() & header.keys()
        if twice:
            raise Malformed(f"{path}: {min(twice)} is in another weight file too")
        table |= header
    return table


def _architecture(folder: Path, config: dict[str, Any]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise Malformed(f"{folder}/config.json names not exactly one architecture")
    return names[0]


def _eos_ids(folder: Path, value: object) -> tuple[int, ...]:
    ids = value if isinstance(value, list) else [value]
    if not 1 <= len(ids) <= MAX_EOS_IDS or not _all_ids(ids):
        raise Malformed(f"{folder}: eos_token_id is {str(value)[:80]}; wanted 1 to {MAX_EOS_IDS} token ids")
    return tuple(sorted(set(ids)))


def _all_ids(values: list[Any]) -> TypeGuard[list[int]]:
    return all(type(value) is int and 0 <= value < MAX_VOCABULARY for value in values)


def _template(folder: Path) -> bytes:
    """Bytes of chat_template.jinja, else of the template string in tokenizer_config.json as UTF-8."""
    if _has(folder, "chat_template.jinja"):
        return _read(folder / "chat_template.jinja")
    if not _has(folder, "tokenizer_config.json"):
        return b""
    template = _json_object(folder / "tokenizer_config.json").get("chat_template", "")
    if not isinstance(template, str):
        raise Malformed(f"{folder}/tokenizer_config.json: several chat templates, and a run can name only one")
    return template.encode("utf-8", "surrogatepass")


def _json_object(path: Path) -> dict[str, Any]:
    try:
        value = from_json(_read(path))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise Malformed(f"{path}: not a JSON object")
    return value


def _sha256(path: Path) -> str:
    return hashlib.sha256(_read(path) if path.is_file() else b"").hexdigest()


def _read(path: Path) -> bytes:
    if path.stat().st_size > MAX_JSON_BYTES:
        raise Malformed(f"{path}: over {MAX_JSON_BYTES} bytes")
    return path.read_bytes()


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_file()
