import hashlib
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from node.errors import ConfigError, EngineError, StoreError
from node.training.export import export
from node.training.hyper import Hyper
from node.training.step import Learner


def ignore(done, total):
    pass


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_a_base_whose_index_names_half_its_files_is_refused_and_not_filled_by_chance(base, tmp_path):
    shutil.copytree(base, tmp_path / "split")
    tensors = sorted(load_file(base / "model.safetensors").items())
    (tmp_path / "split" / "model.safetensors").unlink()
    for number, part in enumerate((dict(tensors[:9]), dict(tensors[9:]))):
        save_file(part, tmp_path / "split" / f"model-{number}.safetensors", {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: "model-0.safetensors" for name, _ in tensors[:9]}}
    (tmp_path / "split" / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(EngineError, match="lacks"):
        Learner(tmp_path / "split", Hyper(1e-3), 1.0, threads=1)


def test_an_untrained_model_is_the_base_byte_for_byte(base, tmp_path):
    Learner(base, Hyper(1e-3), 1.0, threads=1).export(tmp_path / "v0")

    assert digests(tmp_path / "v0") == digests(base)


def test_a_trained_model_loads_and_is_the_rounded_masters(base, make_group, tmp_path):
    learner = Learner(base, Hyper(1e-3), 1.0, threads=1)
    learner.step([make_group([1.0, 0.0])], ignore)
    learner.export(tmp_path / "v1")
    masters = load_file(learner.save_state(tmp_path / "states") / "state.safetensors")

    loaded = dict(AutoModelForCausalLM.from_pretrained(tmp_path / "v1", dtype=torch.bfloat16).named_parameters())

    assert loaded.keys() == {name.removeprefix("weight/") for name in masters if name.startswith("weight/")}
    for name, parameter in loaded.items():
        assert torch.equal(parameter, masters[f"weight/{name}"].to(torch.bfloat16))
    changed = {name for name, digest in digests(tmp_path / "v1").items() if digest != digests(base)[name]}
    assert changed == {"model.safetensors"}


def test_the_same_weights_give_the_same_bytes(base, make_group, tmp_path):
    for folder in ("a", "b"):
        learner = Learner(base, Hyper(1e-3), 1.0, threads=1)
        learner.step([make_group([1.0, 0.0])], ignore)
        learner.export(tmp_path / folder)

    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_an_export_replaces_an_older_one_whole(base, tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "stray.txt").write_text("from before")
    Learner(base, Hyper(1e-3), 1.0, threads=1).export(tmp_path / "v1")

    assert digests(tmp_path / "v1") == digests(base)
    assert [path.name for path in tmp_path.iterdir()] == ["v1"]


def test_shards_and_tensors_that_are_no_weights_keep_their_place(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    first, second = torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(4, dtype=torch.bfloat16)
    save_file({"z": first, "rope": torch.arange(5, dtype=torch.float32)}, base / "model-1.safetensors", {"by": "me"})
    save_file({"a": second}, base / "model-2.safetensors")

    export({"z": first * 2, "a": second * 3}, base, tmp_path / "out")

    assert load_file(tmp_path / "out" / "model-1.safetensors")["z"].tolist() == [[2.0] * 3] * 2
    assert load_file(tmp_path / "out" / "model-1.safetensors")["rope"].tolist() == [0, 1, 2, 3, 4]
    assert load_file(tmp_path / "out" / "model-2.safetensors")["a"].tolist() == [3.0] * 4
    for name in ("model-1.safetensors", "model-2.safetensors"):
        old, new = ((folder / name).read_bytes() for folder in (base, tmp_path / "out"))
        size = 8 + int.from_bytes(old[:8], "little")
        assert (new[:size], len(new)) == (old[:size], len(old))


def test_a_base_that_lacks_a_weight_or_has_another_type_is_refused(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    save_file({"a": torch.ones(4)}, base / "model.safetensors")
    weight = torch.ones(4, dtype=torch.bfloat16)

    with pytest.raises(ConfigError, match="a is F32"):
        export({"a": weight}, base, tmp_path / "out")
    with pytest.raises(ConfigError, match="no tensor b"):
        export({"b": weight}, base, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        (2**60).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b'{"a": {}}',
        (lambda h: len(h).to_bytes(8, "little") + h)(
            json.dumps({"x": {"dtype": "BF16", "shape": [9], "data_offsets": [0, 18]}}).encode()
        ),
    ],
)
def test_a_base_file_that_is_no_safetensors_is_an_error_of_the_store(tmp_path, content):
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(content)

    with pytest.raises(StoreError):
        export({}, base, tmp_path / "out")
    assert not (tmp_path / "out").exists()
