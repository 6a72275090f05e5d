"""Facts of a model folder, and folders that are refused."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from node.errors import ConfigError, Malformed, NodeError, NotFound
from node.models.digests import model_facts, require_model_folder
from node.models.resolve import resolve
from node.models.tiny import build_tiny


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    build_tiny(folder)
    return folder


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_digests_are_over_the_exact_bytes(folder: Path) -> None:
    facts = model_facts(folder)

    assert facts.config == sha256(folder / "config.json")
    assert facts.tokenizer == sha256(folder / "tokenizer.json")
    assert facts.chat_template == sha256(folder / "chat_template.jinja")
    assert facts.generation_config == sha256(folder / "generation_config.json")


def test_a_template_inside_the_tokenizer_configuration_counts_as_its_text(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", chat_template="{{ messages }}é")

    assert model_facts(folder).chat_template == hashlib.sha256("{{ messages }}é".encode()).hexdigest()


def test_files_that_may_be_missing_count_as_empty(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").unlink()
    (folder / "generation_config.json").unlink()

    facts = model_facts(folder)

    empty = hashlib.sha256(b"").hexdigest()
    assert (facts.chat_template, facts.generation_config, facts.eos_ids) == (empty, empty, (1,))


def test_eos_ids_come_from_the_generation_configuration_sorted(folder: Path) -> None:
    change(folder / "generation_config.json", eos_token_id=[7, 1, 7])

    assert model_facts(folder).eos_ids == (1, 7)


@pytest.mark.parametrize("value", [None, "1", -1, [], [1] * 17, True, 2**30, [1.0]])
def test_eos_ids_that_are_none_are_malformed(folder: Path, value: Any) -> None:
    change(folder / "generation_config.json", eos_token_id=value)

    with pytest.raises(Malformed):
        model_facts(folder)


def test_the_vocabulary_is_the_number_of_logits(folder: Path) -> None:
    save_file({"lm_head.weight": torch.zeros(300, 128, dtype=torch.bfloat16)}, folder / "more.safetensors")

    assert model_facts(folder).vocabulary == 300


def test_a_tensor_in_two_files_is_malformed(folder: Path) -> None:
    save_file({"model.norm.weight": torch.zeros(128)}, folder / "more.safetensors")

    with pytest.raises(Malformed, match=r"model\.norm\.weight"):
        model_facts(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_what_it_needs_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()

    with pytest.raises(Malformed):
        require_model_folder(folder)


def test_pickled_weights_do_not_count(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(Malformed, match="can run code"):
        require_model_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_model_that_wants_its_own_code_is_refused(folder: Path, name: str) -> None:
    change(folder / name, auto_map={"AutoConfig": "evil.Config"})

    with pytest.raises(Malformed, match="auto_map"):
        require_model_folder(folder)


@settings(deadline=None, max_examples=60)
@given(data=st.binary(max_size=60) | st.just(b"[" * 100_000))
def test_any_configuration_bytes_are_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    build_tiny(folder)
    (folder / "config.json").write_bytes(data)

    with pytest.raises(NodeError):
        model_facts(folder)


def test_resolve_gives_the_built_in_tiny_from_the_cache(tmp_path: Path) -> None:
    first = resolve("tiny", lambda _: None, cache=tmp_path)

    assert first == resolve("tiny", lambda _: None, cache=tmp_path)
    assert first.parent == tmp_path
    assert model_facts(first).vocabulary == 264


def test_resolve_gives_a_folder_as_it_is(folder: Path) -> None:
    assert resolve(str(folder), lambda _: None) == folder


@pytest.mark.parametrize("reference", ["", "no such model", "/no/such/folder", "a/b/c", "../x y"])
def test_resolve_says_what_can_be_given_when_nothing_fits(reference: str) -> None:
    with pytest.raises(ConfigError, match="smollm2, tiny"):
        resolve(reference, lambda _: None)


def test_resolve_of_a_hub_name_says_so_when_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(NotFound, match="smollm2, tiny"):
        resolve("owner/model", lambda _: None)
