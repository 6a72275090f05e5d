"""Training states on disk: all that a killed trainer needs to go on bit for bit.

A state is a folder `state-N` with `state.safetensors` (masters, moments), `state.json` (the rest) and `BLAKE3SUMS` of
both, as b3sum writes it. N only counts saves; the folder is renamed into place when it is complete, so a half-written
one has no such name.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import blake3
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ledger.base import Digest, Version
from node.errors import StoreError
from node.training.batch import GroupId
from node.training.folders import discard, remove_partial, whole_folder

log = logging.getLogger(__name__)

KEEP = 2  # a state that the disk has spoilt leaves one more
MAX_JSON_BYTES = 64 * 1024 * 1024
_TENSORS, _JSON, _SUMS = "state.safetensors", "state.json", "BLAKE3SUMS"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """version: of the weights, i.e. batches taken; consumed: groups that a later batch could otherwise take again."""

    version: Version
    consumed: Mapping[GroupId, Version]
    tensors: Mapping[str, Tensor]


class _Consumed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    commitment: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    group: Annotated[int, Field(ge=0)]
    version: Annotated[int, Field(ge=0)]


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal[1]
    version: Annotated[int, Field(ge=0)]
    consumed: list[_Consumed]


def save_state(root: Path, state: State, keep: int = KEEP) -> Path:
    """Adds `state` to `root` and drops all but the last `keep`. Returns its folder.

    Killed at any instruction, what `latest_state` returned before is still there, or the new one is.

    Raises: StoreError.
    """
    folder = root / f"state-{max((number for number, _ in _saved(root)), default=0) + 1:08d}"
    with whole_folder(folder) as partial:
        _save_tensors(state.tensors, partial / _TENSORS)
        facts = _Facts(
            format=1,
            version=state.version,
            consumed=[
                _Consumed(commitment=id_.commitment.hex(), group=id_.group, version=version)
                for id_, version in state.consumed.items()
            ],
        )
        (partial / _JSON).write_text(facts.model_dump_json())
        (partial / _SUMS).write_text(_sums(partial))
    try:
        remove_partial(root)
        for _, old in sorted(_saved(root))[: -max(keep, 1)]:
            discard(old)
    except OSError as error:
        raise StoreError(f"{root}: {error.strerror or error}") from error
    return folder


def latest_state(root: Path) -> State | None:
    """The last state that is whole, or None where none was ever saved.

    Raises: StoreError: there are states and none can be used.
    """
    saved = sorted(_saved(root), reverse=True)
    for _, folder in saved:
        try:
            state = _load(folder)
        except (StoreError, OSError, ValidationError, SafetensorError) as error:
            log.warning("training state %s cannot be used, trying the one before: %s", folder, error)
        else:
            return state
    if saved:
        raise StoreError(f"none of the {len(saved)} training states in {root} can be used")
    return None


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # its own type, for a full disk too
        raise StoreError(f"{path}: {error}") from error


def _load(folder: Path) -> State:
    if (folder / _SUMS).read_bytes() != _sums(folder).encode():
        raise StoreError("its files are not what was saved")
    if (folder / _JSON).stat().st_size > MAX_JSON_BYTES:
        raise StoreError(f"{_JSON} is over {MAX_JSON_BYTES} bytes")
    facts = _Facts.model_validate_json((folder / _JSON).read_bytes())
    consumed = {
        GroupId(Digest(bytes.fromhex(entry.commitment)), entry.group): Version(entry.version)
        for entry in facts.consumed
    }
    return State(Version(facts.version), consumed, load_file(folder / _TENSORS))


def _sums(folder: Path) -> str:
    digests = {
        name: blake3.blake3(max_threads=blake3.blake3.AUTO).update_mmap(folder / name).hexdigest()
        for name in (_TENSORS, _JSON)
    }
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def _saved(root: Path) -> Iterator[tuple[int, Path]]:
    for folder in root.glob("state-*"):
        number = folder.name.removeprefix("state-")
        if number.isascii() and number.isdigit() and folder.is_dir():
            yield int(number), folder
