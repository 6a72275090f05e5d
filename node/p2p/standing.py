"""How a role stands among its peers, as it leaves it on its disk for `status`: another process reads it."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_FILE_BYTES = 64 << 10

_Text = Annotated[str, Field(max_length=500)]


class _Peer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    peer_id: _Text
    node: _Text


class _Counts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    heard: int
    invalid: int
    strange: int
    dropped: int


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    on: bool
    why: _Text | None = None
    peer_id: _Text | None = None
    port: int | None = None
    peers: Annotated[list[_Peer], Field(max_length=1024)] = []
    announced: bool = True
    reachable: bool | None = None
    reachable_by: Annotated[list[_Text], Field(max_length=16)] = []
    reachable_at: int | None = None
    announcements: _Counts | None = None
    at: int


def read_standing(path: Path) -> dict[str, Any] | None:
    """What a role left in `path`; None where there is nothing, or what is there is not its."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        return _File.model_validate_json(data).model_dump(mode="json") if len(data) <= MAX_FILE_BYTES else None
    except (OSError, ValidationError):
        return None
