"""What differs between two model folders, and what does not fit a model."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from node.engines.base import Policy
from node.engines.changes import Change, changes_between
from node.engines.transformers import TransformersEngine
from node.errors import EngineError

POLICY = Policy(temperature=1.0, max_output_tokens=4, eos_ids=frozenset({0}), group_size=1)
NORM = "model.norm.weight"


@pytest.fixture
def engine(tiny_folder: Path) -> TransformersEngine:
    made = TransformersEngine(POLICY, 1)
    made.load(tiny_folder)
    return made


def edited(folder: Path, target: Path, name: str, indices: list[int]) -> Path:
    """A copy in which the lowest bit of some values is another one."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    tensors[name].view(torch.int16).view(-1)[indices] ^= 1
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    return target


def test_changes_are_the_new_patterns_at_flat_indices(tiny_folder: Path, tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    target = edited(tiny_folder, tmp_path / "new", name, [3, 130])
    words = load_file(target / "model.safetensors")[name].view(torch.int16).view(-1).numpy().view(np.uint16)

    found = changes_between(tiny_folder, target)

    assert found is not None and len(found) == 1
    assert (found[0].name, found[0].indices.tolist()) == (name, [3, 130])
    assert found[0].values.tolist() == [words[3], words[130]]
    assert changes_between(target, target) == []


def test_changes_are_found_when_a_tensor_is_compared_in_pieces(tiny_folder: Path, tmp_path: Path) -> None:
    name = "model.embed_tokens.weight"
    target = edited(tiny_folder, tmp_path / "new", name, [0, 999, 1000, 2001])

    found = changes_between(tiny_folder, target, piece_bytes=2000)

    assert found is not None and found[0].indices.tolist() == [0, 999, 1000, 2001]


def test_there_are_no_changes_when_there_are_too_many(tiny_folder: Path, tmp_path: Path) -> None:
    target = edited(tiny_folder, tmp_path / "new", NORM, [0, 1, 2])

    assert changes_between(tiny_folder, target, most=3) is not None
    assert changes_between(tiny_folder, target, most=2) is None


def test_a_changed_value_takes_ten_bytes(tiny_folder: Path, tmp_path: Path) -> None:
    found = changes_between(tiny_folder, edited(tiny_folder, tmp_path / "new", NORM, [0, 1, 2]))

    assert found is not None
    kept = [array if array.base is None else array.base for array in (found[0].indices, found[0].values)]
    assert sum(array.nbytes for array in kept) == 30


@pytest.mark.parametrize("what", ["config", "head", "missing", "short", "gone"])
def test_there_are_no_changes_when_more_than_values_changed(tiny_folder: Path, tmp_path: Path, what: str) -> None:
    target = edited(tiny_folder, tmp_path / "new", NORM, [0])
    weights = target / "model.safetensors"
    if what == "config":
        (target / "config.json").write_text((target / "config.json").read_text() + "\n")
    elif what == "head":
        save_file(load_file(weights), weights, {"format": "other"})
    elif what == "missing":
        weights.rename(target / "other.safetensors")
    elif what == "short":
        weights.write_bytes(weights.read_bytes()[:-2])
    else:
        shutil.rmtree(target)

    assert changes_between(tiny_folder, target) is None


@pytest.mark.parametrize(("name", "indices"), [(NORM, [128]), (NORM, [-1]), (NORM, [0, 1]), ("lm_head.weight", [0])])
def test_a_patch_that_does_not_fit_changes_nothing(
    engine: TransformersEngine, tiny_folder: Path, name: str, indices: list[int]
) -> None:
    before = engine.weights_digest()
    fits = Change(NORM, np.array([0], np.int64), np.array([7], np.uint16))
    does_not = Change(name, np.array(indices, np.int64), np.array([0], np.uint16))

    with pytest.raises(EngineError):
        engine.patch(tiny_folder, [fits, does_not])

    assert engine.weights_digest() == before


def test_another_configuration_is_not_patched(engine: TransformersEngine, tiny_folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(tiny_folder, tmp_path / "other"))
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")

    with pytest.raises(EngineError, match="not the configuration"):
        engine.patch(other, [])
