"""Sums of reasoning-gym: the same questions on every machine, and a reward that nobody can upset."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import SpecMismatch
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH
from node.tasks.arithmetic import ARITHMETIC
from node.tasks.base import Item, Task, Tokenizer
from node.tasks.environment import Setting

ASKED = "State the final answer to the following arithmetic problem: {} ="


def arithmetic(tokenizer: Tokenizer, fuel_limit: int = 1024, config: Mapping[str, Setting] | None = None) -> Task:
    return ARITHMETIC.build(ARITHMETIC.parse(config or {}), tokenizer, fuel_limit)


def questions_by_hand(seed: int, draws: int) -> list[tuple[str, str]]:
    """An implementation of its own: the order in which `chain_sum` consumes one generator per item."""
    seen: dict[str, str] = {}
    for index in range(draws):
        rng = random.Random(seed + index)
        rng.randint(2, 2)
        rng.randint(1, 1)
        a, b = rng.randint(0, 9), rng.randint(0, 9)
        sign = rng.choice(["+", "-"])
        seen.setdefault(f"{a} {sign} {b}", str(a + b if sign == "+" else a - b))
    return list(seen.items())


@pytest.fixture(scope="module")
def task(byte_tokenizer: Tokenizer) -> Task:
    return arithmetic(byte_tokenizer)


def test_all_200_questions_are_there_and_64_are_held_out(task: Task, byte_tokenizer: Tokenizer) -> None:
    every = {f"{a} {sign} {b}" for a in range(10) for b in range(10) for sign in "+-"}
    asked = [byte_tokenizer.decode(item.prompt_ids) for item in (*task.items, *task.held_out)]

    assert (len(task.items), len(task.held_out)) == (136, 64)
    assert set(asked) == {f"system:You are a calculator.\nuser:{ASKED.format(question)}\n" for question in every}


def test_questions_come_in_the_order_of_the_data_set(task: Task, byte_tokenizer: Tokenizer) -> None:
    expected = [
        Item(byte_tokenizer.chat([("system", "You are a calculator."), ("user", ASKED.format(question))]), answer)
        for question, answer in questions_by_hand(seed=0, draws=4096)
    ]

    assert [*task.held_out, *task.items] == expected


def test_another_seed_holds_out_other_questions(task: Task, byte_tokenizer: Tokenizer) -> None:
    other = arithmetic(byte_tokenizer, config={"seed": 100_000})

    assert len(other.items) == 136
    assert other.held_out != task.held_out


def test_terms_and_digits_follow_the_config(byte_tokenizer: Tokenizer) -> None:
    task = arithmetic(byte_tokenizer, config={"terms": 3, "digits": 2, "draws": 50, "held_out": 0})

    for item in task.items:
        terms = byte_tokenizer.decode(item.prompt_ids).split("problem: ")[1].split(" =")[0].split()
        numbers = [int(term) for term in terms[::2]]
        assert [len(str(number)) for number in numbers] == [2, 2, 2]
        first, second = (1 if sign == "+" else -1 for sign in terms[1::2])
        assert int(item.answer) == numbers[0] + first * numbers[1] + second * numbers[2]


def test_questions_depend_on_no_state_of_the_process(task: Task, byte_tokenizer: Tokenizer) -> None:
    random.seed(12345)
    before = random.getstate()

    assert arithmetic(byte_tokenizer).items == task.items
    assert random.getstate() == before


def test_questions_depend_on_no_hash_seed(task: Task) -> None:
    program = (
        "from node.tasks.arithmetic import ArithmeticSettings, _questions\n"
        "print('\\n'.join(_questions(ArithmeticSettings()).values()))"
    )

    def answers(hash_seed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    expected = [item.answer for item in (*task.held_out, *task.items)]
    assert answers("1") == answers("2") == expected


# --- Reward

SEVEN, MINUS_SEVEN, ZERO = Item((1,), "7"), Item((1,), "-7"), Item((1,), "0")


@pytest.mark.parametrize(
    ("item", "answer", "reward"),
    [
        (SEVEN, "7", 1.0),
        (SEVEN, "9 - 2 = 7.", 1.0),
        (SEVEN, "The answer is 7!", 1.0),
        (SEVEN, "7, or 8", 0.0),
        (SEVEN, "17", 0.0),
        (SEVEN, "9-7", 0.0),  # the last number is -7
        (SEVEN, "07", 0.0),
        (SEVEN, "7.0", 0.0),
        (SEVEN, "seven", 0.0),
        (SEVEN, "٧", 0.0),  # a digit, but no ASCII
        (SEVEN, "", 0.0),
        (MINUS_SEVEN, "-7", 1.0),
        (MINUS_SEVEN, "2-9=-7", 1.0),
        (MINUS_SEVEN, "− 7", 0.0),
        (ZERO, "-0", 0.0),
    ],
)
def test_the_last_number_must_be_the_answer(task: Task, item: Item, answer: str, reward: float) -> None:
    assert task.score(item, tuple(answer.encode()), FINISH_EOS) == reward


def test_a_truncated_answer_earns_nothing(task: Task) -> None:
    assert task.score(SEVEN, tuple(b"7"), FINISH_LENGTH) == 0.0


def test_only_the_last_characters_within_the_fuel_limit_are_looked_at(byte_tokenizer: Tokenizer) -> None:
    task = arithmetic(byte_tokenizer, fuel_limit=4)

    assert task.score(SEVEN, tuple(b"7 abc"), FINISH_EOS) == 0.0
    assert task.score(SEVEN, tuple(b"7 ab"), FINISH_EOS) == 1.0


@pytest.mark.parametrize("text", ["-" * 2**20, "9" * 2**20, "-1" * 2**19, "7 " * 2**19])
def test_a_huge_answer_takes_no_more_than_its_decoding(task: Task, text: str) -> None:
    ids = tuple(text.encode())
    started = time.process_time()

    task.score(SEVEN, ids, FINISH_EOS)

    assert time.process_time() - started < 2


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 263), max_size=60), st.integers(0, 255))
def test_any_tokens_have_a_reward(tiny_tokenizer: Tokenizer, ids: list[int], finish: int) -> None:
    task = arithmetic(tiny_tokenizer, config={"draws": 8, "held_out": 0})

    assert task.score(task.items[0], ids, finish) in {0.0, 1.0}


# --- Config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"term": 2}, "config, term: "),
        ({"terms": "2"}, "config, terms: "),
        ({"terms": True}, "config, terms: "),
        ({"terms": 0}, "config, terms: "),
        ({"terms": 10**6}, "config, terms: "),
        ({"digits": 10}, "config, digits: "),
        ({"draws": 2**31 - 1}, "config, draws: "),
        ({"seed": -1}, "config, seed: "),
        ({"draws": 10, "held_out": 10}, "config, held_out: 10 of only 10 questions"),
    ],
)
def test_a_config_out_of_bounds_is_refused_by_field(
    byte_tokenizer: Tokenizer, config: dict[str, Setting], message: str
) -> None:
    with pytest.raises(SpecMismatch, match=message):
        arithmetic(byte_tokenizer, config=config)
