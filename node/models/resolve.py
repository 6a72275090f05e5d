"""From what a user calls a model to a folder on this disk."""

from __future__ import annotations

import re
from pathlib import Path

from node.errors import ConfigError, Malformed, NotFound
from node.models.cache import Say, default_cache
from node.models.digests import require_model_folder, tensor_table
from node.models.smollm2 import smollm2
from node.models.tiny import tiny

BUILT_IN = {"smollm2": smollm2, "tiny": tiny}
HUB_FILES = ["*.json", "*.jinja", "*.safetensors"]  # never pickles, never code
_HUB_NAME = re.compile(r"([A-Za-z0-9._-]{1,96}/[A-Za-z0-9._-]{1,96})(?:@([A-Za-z0-9._-]{1,64}))?")


def resolve(reference: str, say: Say, cache: Path | None = None) -> Path:
    """A folder with config.json, safetensors and tokenizer.json.

    Args:
        reference: a built-in name (`smollm2`, `tiny`), a folder, or a hub name `owner/model`, `owner/model@revision`.
        say: takes lines of progress.
        cache: where built-in models are kept; this user's cache folder by default.

    Raises:
        ConfigError: there is no such model, or it cannot be used here.
        NotFound: it could not be fetched now.
        StoreError: the disk refused, or built-in bytes are not those pinned.
    """
    if reference in BUILT_IN:
        return BUILT_IN[reference](cache or default_cache(), say)
    folder = Path(reference).expanduser()
    if not reference or not folder.is_dir():
        folder = _from_hub(reference, say)
    _require_usable(folder)
    return folder


def _require_usable(folder: Path) -> None:
    try:
        require_model_folder(folder)
        tensor_table(folder)  # heads only: a download that was cut short is found before anything is made of it
    except (Malformed, OSError) as error:
        raise ConfigError(
            f"the model in {folder} cannot be used: {error}: download or copy it again, or name another one"
        ) from error


def _from_hub(reference: str, say: Say) -> Path:
    match = _HUB_NAME.fullmatch(reference)
    if match is None:
        raise ConfigError(
            f"{reference!r} is neither a built-in model ({', '.join(BUILT_IN)}), nor a folder, nor a hub name"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    say(f"{reference}: fetching from the model hub, or from its cache on this disk")
    try:
        return Path(snapshot_download(match[1], revision=match[2], allow_patterns=HUB_FILES))
    except RepositoryNotFoundError as error:
        raise ConfigError(f"{reference}: the hub has no such model, or it needs a login") from error
    except _network_errors() as error:
        raise NotFound(
            f"{reference}: not in the hub's cache on this disk, and the hub cannot be reached. "
            f"Give a folder, or a built-in model: {', '.join(BUILT_IN)}"
        ) from error


def _network_errors() -> tuple[type[Exception], ...]:
    """OSError, and the error of whichever HTTP library this version of the hub's client is built on."""
    from huggingface_hub.errors import HfHubHTTPError

    return tuple(base for base in HfHubHTTPError.__mro__ if issubclass(base, Exception) and base is not Exception)
