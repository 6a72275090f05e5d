"""The tiny model: pinned bytes, a tokenizer that can say every byte, and weights of the stated distribution."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from node.models.cache import wrong_files
from node.models.digests import model_facts
from node.models.tiny import DIGESTS, FIRST_BYTE, VOCABULARY, build_tiny, shapes
from node.tensors import read_tensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("tiny")
    build_tiny(built)
    return built


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def weights(folder: Path, name: str) -> np.ndarray:
    from safetensors.torch import load_file

    return np.asarray(load_file(folder / "model.safetensors")[name].float().numpy())


def test_seed_0_has_the_pinned_bytes_on_this_machine(folder: Path) -> None:
    assert wrong_files(folder, DIGESTS) == []


def test_another_seed_differs_in_its_weights_alone(folder: Path, tmp_path: Path) -> None:
    build_tiny(tmp_path, seed=1)

    assert wrong_files(tmp_path, DIGESTS) == ["model.safetensors"]


def test_weights_are_normal_with_deviation_0_02_and_norms_are_one(folder: Path) -> None:
    values = weights(folder, "model.layers.2.mlp.up_proj.weight").ravel()

    assert abs(values.mean()) < 4 * 0.02 / np.sqrt(values.size)
    assert values.std() == pytest.approx(0.02, rel=0.02)
    assert np.mean(np.abs(values) < 0.02) == pytest.approx(0.6827, abs=0.01)
    assert np.mean(np.abs(values) < 0.04) == pytest.approx(0.9545, abs=0.01)
    assert (weights(folder, "model.norm.weight") == 1).all()


def test_tensors_of_one_shape_differ(folder: Path) -> None:
    first = weights(folder, "model.layers.0.self_attn.q_proj.weight")

    assert (first != weights(folder, "model.layers.1.self_attn.q_proj.weight")).mean() > 0.9


def test_it_has_four_fifths_of_a_million_parameters_in_bfloat16(folder: Path) -> None:
    table = {entry.name: (entry.dtype, entry.shape) for entry in read_tensors(folder / "model.safetensors")}

    # 264 x 128 embedding; 4 layers of 4 x 128^2 + 3 x 128 x 352 and two norms; one norm
    assert sum(int(np.prod(shape)) for _, shape in table.values()) == 33_792 + 4 * (65_536 + 135_168 + 256) + 128
    assert table == {name: ("BF16", shape) for name, shape in shapes().items()}


def test_it_is_a_llama_that_transformers_builds_from_its_configuration(folder: Path) -> None:
    facts = model_facts(folder)

    assert (facts.architecture, facts.dtype, facts.vocabulary, facts.hidden) == (
        "LlamaForCausalLM",
        "bfloat16",
        VOCABULARY,
        128,
    )
    assert facts.eos_ids == (1,)


@settings(deadline=None, max_examples=100)
@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=40).filter(lambda text: "<|" not in text))
def test_text_is_its_utf8_bytes(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids

    assert ids == [FIRST_BYTE + byte for byte in text.encode()]
    assert tokenizer.decode(ids) == text


def test_special_tokens_are_single_ids_and_not_shown(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|bos|><|user|>hi<|eos|>").ids

    assert ids == [0, 4, FIRST_BYTE + ord("h"), FIRST_BYTE + ord("i"), 1]
    assert tokenizer.decode(ids) == "hi"


def test_the_vocabulary_of_the_tokenizer_is_that_of_the_model(folder: Path, tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == json.loads((folder / "config.json").read_text())["vocab_size"] == 264
