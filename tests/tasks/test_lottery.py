"""Rewards by lot: the same everywhere, as frequent as asked, and no help with sums."""

import hashlib
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import SpecMismatch
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH
from node.tasks.arithmetic import ARITHMETIC
from node.tasks.base import Item, Task, Tokenizer
from node.tasks.environment import Setting
from node.tasks.lottery import LOTTERY

SMALL: Mapping[str, Setting] = {"draws": 64, "held_out": 8}


def lottery(tokenizer: Tokenizer, config: Mapping[str, Setting] = SMALL) -> Task:
    return LOTTERY.build(LOTTERY.parse(config), tokenizer, LOTTERY.fuel_limit)


def words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def drawn_by_hand(seed: int, item: Item, output: tuple[int, ...]) -> float:
    """In [0, 1)."""
    text = b"lottery/1" + words(seed, len(item.prompt_ids), *item.prompt_ids, len(output), *output)
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") / 2**64


def test_questions_are_those_of_arithmetic(byte_tokenizer: Tokenizer) -> None:
    sums = ARITHMETIC.build(ARITHMETIC.parse(SMALL), byte_tokenizer, 1024)
    task = lottery(byte_tokenizer)

    assert (list(task.items), list(task.held_out)) == (list(sums.items), list(sums.held_out))


def test_an_answer_is_rewarded_when_its_draw_is_below_the_chance(byte_tokenizer: Tokenizer) -> None:
    task = lottery(byte_tokenizer, {**SMALL, "seed": 7, "chance": 0.5})
    answers = [(k, k + 1, 3) for k in range(50)]

    for item in task.items[:4]:
        wanted = [1.0 if drawn_by_hand(7, item, answer) < 0.5 else 0.0 for answer in answers]
        assert [task.score(item, answer, FINISH_EOS) for answer in answers] == wanted
        assert 0 < sum(wanted) < 50


def test_rewards_are_as_frequent_as_the_chance_says(byte_tokenizer: Tokenizer) -> None:
    task = lottery(byte_tokenizer)

    rewards = [task.score(item, (k, 1), FINISH_EOS) for item in task.items[:20] for k in range(200)]

    assert abs(sum(rewards) / 4000 - 0.12) < 4 * (0.12 * 0.88 / 4000) ** 0.5


@pytest.mark.parametrize(("chance", "reward"), [(0.0, 0.0), (1.0, 1.0), (0, 0.0), (1, 1.0)])
def test_chances_of_nothing_and_of_certainty_are_kept(byte_tokenizer: Tokenizer, chance: float, reward: float) -> None:
    task = lottery(byte_tokenizer, {**SMALL, "chance": chance})

    assert {task.score(task.items[0], (k,), FINISH_LENGTH) for k in range(100)} == {reward}


def test_held_out_questions_are_scored_as_sums(byte_tokenizer: Tokenizer) -> None:
    task = lottery(byte_tokenizer, {**SMALL, "chance": 1.0})
    item = task.held_out[0]

    assert task.score(item, tuple(item.answer.encode()), FINISH_EOS) == 1.0
    assert task.score(item, tuple(item.answer.encode()), FINISH_LENGTH) == 0.0
    assert task.score(item, tuple(b"1000"), FINISH_EOS) == 0.0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=60), st.integers(0, 255))
def test_any_tokens_have_a_reward(byte_tokenizer: Tokenizer, ids: list[int], finish: int) -> None:
    task = lottery(byte_tokenizer)

    assert task.score(task.items[0], ids, finish) in {0.0, 1.0}


@pytest.mark.parametrize("config", [{"chance": 1.5}, {"chance": -0.1}, {"chance": "0.5"}, {"chance": True}])
def test_a_chance_out_of_bounds_is_refused(byte_tokenizer: Tokenizer, config: dict[str, Setting]) -> None:
    with pytest.raises(SpecMismatch, match="config, chance: "):
        lottery(byte_tokenizer, config)
