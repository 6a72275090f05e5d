"""Tokenizers for tasks: one of plain bytes, and the tiny model's."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from node.models.tiny import build_tiny
from node.tasks.base import Tokenizer
from node.tasks.tokenizer import load_tokenizer


class ByteTokenizer:
    """UTF-8 bytes are the ids; turns are joined as `role:text` lines. Written for tests, but a whole tokenizer."""

    def chat(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        return tuple("".join(f"{role}:{text}\n" for role, text in messages).encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(token for token in ids if 0 <= token < 256).decode(errors="replace")


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    return ByteTokenizer()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    build_tiny(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_folder: Path) -> Tokenizer:
    return load_tokenizer(tiny_folder)
