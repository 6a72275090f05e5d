"""The small part of a training state: which weights it is of, and which groups have been used up. Needs no torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from node.errors import StoreError

MAX_JSON_BYTES: Final = 64 * 1024 * 1024
JSON_NAME: Final = "state.json"


class Consumed(BaseModel):
    """One group of one submission that a step used; `version` is its rollouts'."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    commitment: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    group: Annotated[int, Field(ge=0)]
    version: Annotated[int, Field(ge=0)]


class Facts(BaseModel):
    """`version` is that of the weights, i.e. the number of steps; `lineage` says what they came from."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal[2]
    version: Annotated[int, Field(ge=0)]
    lineage: Annotated[str, StringConstraints(max_length=1024)]
    consumed: list[Consumed]


def read_facts(folder: Path) -> Facts:
    """Those of one state's folder. Raises: StoreError, OSError, ValidationError."""
    path = folder / JSON_NAME
    if path.stat().st_size > MAX_JSON_BYTES:
        raise StoreError(f"{JSON_NAME} is over {MAX_JSON_BYTES} bytes")
    return Facts.model_validate_json(path.read_bytes())


def latest_facts(root: Path) -> Facts | None:
    """Those of the newest state in `root` that can be read; None where there is none."""
    for _, folder in sorted(saved_states(root), reverse=True):
        try:
            return read_facts(folder)
        except (StoreError, OSError, ValidationError):
            continue
    return None


def saved_states(root: Path) -> Iterator[tuple[int, Path]]:
    """The states' numbers and folders, in no order."""
    for folder in root.glob("state-*"):
        number = folder.name.removeprefix("state-")
        if number.isascii() and number.isdigit() and folder.is_dir():
            yield int(number), folder
