"""The task of residue classes: prompts by number, rewards by counting."""

import hashlib
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import SpecMismatch
from node.tasks.base import Item, Task, Tokenizer
from node.tasks.environment import Setting
from node.tasks.residues import RESIDUES


def residues(tokenizer: Tokenizer, fuel_limit: int = 1024, config: Mapping[str, Setting] | None = None) -> Task:
    return RESIDUES.build(RESIDUES.parse(config or {}), tokenizer, fuel_limit)


def test_prompts_have_the_class_and_four_ids_from_16(byte_tokenizer: Tokenizer) -> None:
    task = residues(byte_tokenizer)
    every = (*task.items, *task.held_out)

    assert (len(task.items), len(task.held_out), len(set(every))) == (512, 64, 576)
    for number, item in enumerate(every):
        assert item.prompt_ids[:2] == (0, 2 + number % 4)
        assert item.answer == str(number % 4)
        assert len(item.prompt_ids) == 6
        assert all(16 <= token < 256 for token in item.prompt_ids[2:])


def test_an_item_follows_from_seed_and_number_alone(byte_tokenizer: Tokenizer) -> None:
    words = hashlib.sha256(b"residues/1 3 9").digest()
    ids = tuple(16 + int.from_bytes(words[at : at + 8], "little") % 240 for at in (0, 8, 16, 24))

    assert residues(byte_tokenizer, config={"seed": 3, "train": 10}).items[9] == Item((0, 3, *ids), "1")
    assert residues(byte_tokenizer, config={"seed": 3, "train": 9}).held_out[0] == Item((0, 3, *ids), "1")


def test_fewer_classes_are_asked_for_when_the_settings_say_so(byte_tokenizer: Tokenizer) -> None:
    two, four = residues(byte_tokenizer, config={"classes": 2}), residues(byte_tokenizer)

    assert [item.answer for item in two.items[:5]] == ["0", "1", "0", "1", "0"]
    assert [item.prompt_ids[1] for item in two.items[:5]] == [2, 3, 2, 3, 2]
    assert [item.prompt_ids[2:] for item in two.items] == [item.prompt_ids[2:] for item in four.items]


def test_ids_of_prompts_are_spread_over_the_vocabulary(byte_tokenizer: Tokenizer) -> None:
    counts = Counter(t for item in residues(byte_tokenizer).items for t in item.prompt_ids[2:])

    assert len(counts) == 240  # 2,048 draws of 240: one is missed with probability 0.05
    assert max(counts.values()) < 30  # mean 8.5


@pytest.mark.parametrize(
    ("output", "reward"),
    [
        ((18, 22, 254, 16), 0.75),  # 18, 22 and 254 leave 2
        ((2, 6, 10, 14), 0.0),  # right residue, but below 16
        ((18,), 1.0),
        ((18, 1), 0.5),  # EOS is a token too
        ((4294967294,), 1.0),  # 2^32 - 2
        ((), 0.0),
    ],
)
def test_reward_is_the_share_of_tokens_in_the_class(
    byte_tokenizer: Tokenizer, output: tuple[int, ...], reward: float
) -> None:
    task = residues(byte_tokenizer)

    assert task.items[2].answer == "2"
    assert task.score(task.items[2], output, 1) == reward
    assert task.score(task.items[2], output, 0) == reward


def test_only_tokens_within_the_fuel_limit_are_looked_at(byte_tokenizer: Tokenizer) -> None:
    task = residues(byte_tokenizer, fuel_limit=2)

    assert task.score(Item((), "0"), (16, 17, 16, 16, 16), 1) == 0.5


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(0, 3))
def test_any_tokens_have_a_reward_between_0_and_1(byte_tokenizer: Tokenizer, ids: list[int], wanted: int) -> None:
    task = residues(byte_tokenizer, config={"train": 4, "held_out": 0})

    assert 0.0 <= task.score(task.items[wanted], ids, 1) <= 1.0


@pytest.mark.parametrize(
    "config",
    [
        {"vocabulary": 16},
        {"train": 0},
        {"classes": 0},
        {"classes": 5},
        {"train": 2**31 - 1},
        {"size": 5},
        {"seed": 1.5},
    ],
)
def test_a_config_out_of_bounds_is_refused(byte_tokenizer: Tokenizer, config: dict[str, Setting]) -> None:
    with pytest.raises(SpecMismatch, match=f"config, {next(iter(config))}: "):
        residues(byte_tokenizer, config=config)
