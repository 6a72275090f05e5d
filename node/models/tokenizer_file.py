"""Writes tokenizer.json, the format of the `tokenizers` library, for byte-level BPE; no library touches the bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def byte_letters() -> list[str]:
    """The printable letter that stands for each byte 0..255 in a byte-level vocabulary.

    Source: openai/gpt-2, encoder.py, `bytes_to_unicode`.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def byte_level(add_prefix_space: bool = False, use_regex: bool = True) -> dict[str, Any]:
    """The ByteLevel step, as pre-tokenizer or decoder."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def write_tokenizer(
    path: Path,
    vocabulary: Sequence[str],
    merges: Sequence[tuple[str, str]],
    specials: Sequence[int],
    pre_tokenizer: dict[str, Any],
) -> None:
    """Writes a tokenizer whose id i is `vocabulary[i]`; ids in `specials` are matched whole and not shown in text."""
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(number, vocabulary[number]) for number in specials],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": byte_level(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(vocabulary)},
            "merges": [list(pair) for pair in merges],
        },
    }
    write_json(path, tokenizer)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as UTF-8 JSON with two spaces of indent and a final newline."""
    path.write_bytes((json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode())


def _special(number: int, content: str) -> dict[str, Any]:
    return {
        "id": number,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
