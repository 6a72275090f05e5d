"""A model's own tokenizer and chat template, from its folder: nothing is fetched, no code of the folder is run."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from node.errors import EngineError
from node.tasks.base import Tokenizer


class FolderTokenizer:
    """The `Tokenizer` that transformers loads. One lock around it: fast tokenizers refuse concurrent borrowing."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._size = len(inner)
        self._lock = threading.Lock()

    def chat(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        """As the protocol says. Raises: EngineError, where the folder's template fails."""
        from jinja2 import TemplateError

        turns = [{"role": role, "content": text} for role, text in messages]
        try:
            with self._lock:
                ids = self._inner.apply_chat_template(
                    turns, add_generation_prompt=True, tokenize=True, return_dict=False
                )
        except (TemplateError, LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(f"the model's chat template failed: {error}") from error
        return tuple(int(token) for token in ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Ids outside the vocabulary have no text and are left out, so that no rollout can make this fail."""
        known = [token for token in ids if 0 <= token < self._size]
        with self._lock:
            text = self._inner.decode(known, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of the model in `folder`, with the folder's chat template.

    Raises:
        EngineError: there is none, it needs code of its own, or it has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        inner = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{folder}: no usable tokenizer: {error}") from error
    if not inner.chat_template:
        raise EngineError(f"{folder}: the tokenizer has no chat template, so prompts cannot be made")
    return FolderTokenizer(inner)
