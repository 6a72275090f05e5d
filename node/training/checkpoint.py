"""Training states on disk: all that a killed trainer needs to go on bit for bit.

A state is a folder `state-N` with `state.safetensors` (masters, moments), `state.json` (the rest) and `BLAKE3SUMS` of
both, as b3sum writes it. N only counts saves; the folder is renamed into place when it is complete, so a half-written
one has no such name.
"""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import blake3
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ledger.base import Digest, Version
from node.errors import StoreError
from node.files import disk_refused
from node.training.batch import GroupId
from node.training.facts import JSON_NAME, Consumed, Facts, read_facts, saved_states
from node.training.folders import discard, remove_partial, whole_folder

log = logging.getLogger(__name__)

KEEP = 2  # a state that the disk has spoilt leaves one more
_TENSORS, _JSON, _SUMS = "state.safetensors", JSON_NAME, "BLAKE3SUMS"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """version: of the weights, i.e. batches taken; consumed: groups that a later batch could otherwise take again;
    lineage: what the last batch was taken from, in its owner's words."""

    version: Version
    consumed: Mapping[GroupId, Version]
    tensors: Mapping[str, Tensor]
    lineage: str = ""


def save_state(root: Path, state: State, keep: int = KEEP) -> Path:
    """Adds `state` to `root` and drops all but the last `keep`. Returns its folder.

    Killed at any instruction, what `latest_state` returned before is still there, or the new one is.

    Raises: StoreError.
    """
    folder = root / f"state-{max((number for number, _ in saved_states(root)), default=0) + 1:08d}"
    with whole_folder(folder) as partial:
        _save_tensors(state.tensors, partial / _TENSORS)
        facts = Facts(
            format=2,
            version=state.version,
            lineage=state.lineage,
            consumed=[
                Consumed(commitment=id_.commitment.hex(), group=id_.group, version=version)
                for id_, version in state.consumed.items()
            ],
        )
        (partial / _JSON).write_text(facts.model_dump_json())
        (partial / _SUMS).write_text(_sums(partial))
    try:
        remove_partial(root)
        for _, old in sorted(saved_states(root))[: -max(keep, 1)]:
            discard(old)
    except OSError as error:
        raise disk_refused(root, error) from error
    return folder


def latest_state(root: Path) -> State | None:
    """The last state that is whole, or None where none was ever saved.

    Raises: StoreError: there are states and none can be used.
    """
    saved = sorted(saved_states(root), reverse=True)
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
    except SafetensorError as error:  # its own type, which has the system's error only in its text
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise StoreError(f"{path}: {error}") from error
        raise disk_refused(path, OSError(int(code[1]), os.strerror(int(code[1])))) from error


def _load(folder: Path) -> State:
    if (folder / _SUMS).read_bytes() != _sums(folder).encode():
        raise StoreError("its files are not what was saved")
    facts = read_facts(folder)
    consumed = {
        GroupId(Digest(bytes.fromhex(entry.commitment)), entry.group): Version(entry.version)
        for entry in facts.consumed
    }
    return State(Version(facts.version), consumed, load_file(folder / _TENSORS), facts.lineage)


def _sums(folder: Path) -> str:
    digests = {
        name: blake3.blake3(max_threads=blake3.blake3.AUTO).update_mmap(folder / name).hexdigest()
        for name in (_TENSORS, _JSON)
    }
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())
