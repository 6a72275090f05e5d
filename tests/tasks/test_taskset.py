"""The numbered prompts of a run: the same everywhere, or a named difference."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from node.errors import ConfigError, SpecMismatch
from node.runspec import TaskSpec
from node.tasks.arithmetic import ARITHMETIC
from node.tasks.base import Item, Tokenizer
from node.tasks.residues import RESIDUES
from node.tasks.taskset import Taskset, describe, digest, load_tasks

EOS = 0


@pytest.fixture(scope="module")
def specs(byte_tokenizer: Tokenizer) -> list[TaskSpec]:
    return [
        describe("residues", {"train": 10, "held_out": 3}, byte_tokenizer, 256),
        describe("arithmetic", {}, byte_tokenizer, 256),
        describe("residues", {"train": 5, "held_out": 2, "seed": 7}, byte_tokenizer, 256),
    ]


@pytest.fixture(scope="module")
def taskset(specs: list[TaskSpec], byte_tokenizer: Tokenizer) -> Taskset:
    return load_tasks(specs, byte_tokenizer, 256)


def changed(spec: TaskSpec, **fields: object) -> TaskSpec:
    return TaskSpec.model_validate({**spec.model_dump(), **fields})


def test_digest_is_sha256_over_lengths_prompts_and_answers() -> None:
    by_hand = bytes.fromhex(
        "08000000" "01000000" "00010000" "02000000" "2d37"  # prompt 1, 256; answer "-7"
        "00000000" "02000000" "c3a9"  # no prompt; answer "é", two bytes
    )  # fmt: skip

    assert digest([Item((1, 256), "-7"), Item((), "é")]) == hashlib.sha256(by_hand).hexdigest()
    assert digest([]) == hashlib.sha256(b"").hexdigest()


def test_an_entry_writes_out_what_the_node_needs_to_reproduce_it(specs: list[TaskSpec]) -> None:
    entry = specs[1]

    assert (entry.name, entry.size, entry.version, entry.scorer_version) == ("arithmetic", 136, 1, 1)
    assert entry.config == {"terms": 2, "digits": 1, "seed": 0, "draws": 4096, "held_out": 64}


def test_items_run_through_the_tasks_in_order(taskset: Taskset, byte_tokenizer: Tokenizer) -> None:
    first = RESIDUES.build(RESIDUES.parse({"train": 10, "held_out": 3}), byte_tokenizer, 1024)
    second = ARITHMETIC.build(ARITHMETIC.parse({}), byte_tokenizer, 1024)
    third = RESIDUES.build(RESIDUES.parse({"train": 5, "held_out": 2, "seed": 7}), byte_tokenizer, 1024)

    assert taskset.size == 10 + 136 + 5
    assert [taskset.item(i) for i in range(taskset.size)] == [*first.items, *second.items, *third.items]
    assert taskset.held_out == (*first.held_out, *second.held_out, *third.held_out)


@pytest.mark.parametrize("index", [-1, 151, 2**64 - 1])
def test_an_index_outside_has_no_item(taskset: Taskset, index: int) -> None:
    with pytest.raises(IndexError, match=f"item {index} of 151"):
        taskset.item(index)
    with pytest.raises(IndexError):
        taskset.score(index, (1,), EOS)


def test_an_answer_is_scored_by_the_task_of_its_item(taskset: Taskset) -> None:
    assert taskset.score(1, (17, 21, 16), EOS) == float(np.float32(2 / 3))  # class 1
    assert taskset.score(10, tuple(taskset.item(10).answer.encode()), EOS) == 1.0
    assert taskset.score(10, (17, 21, 16), EOS) == 0.0
    assert taskset.score(148, (18, 22), EOS) == 1.0  # class 2 of the third task


def test_held_out_answers_are_scored_by_their_own_numbers(taskset: Taskset) -> None:
    assert taskset.held_out[0].answer == "2"  # the eleventh item of the first task
    assert taskset.score_held_out(0, (18, 19), EOS) == 0.5
    assert taskset.score_held_out(3, tuple(taskset.held_out[3].answer.encode()), EOS) == 1.0
    assert taskset.score_held_out(68, (18,), EOS) == 1.0  # the seventh item of the third task
    with pytest.raises(IndexError):
        taskset.score_held_out(69, (1,), EOS)


def test_rewards_are_float32_values(taskset: Taskset) -> None:
    third = taskset.score(0, (16, 17, 18), EOS)

    assert third == 0.3333333432674408
    assert third != 1 / 3


class MinusSign:
    """Plain bytes, but "-" is written as the true minus sign: three bytes, so differences have longer prompts."""

    def chat(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        return tuple("".join(text for _, text in messages).replace("-", "\u2212").encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode().replace("\u2212", "-")


def test_prompts_over_the_limit_are_removed_before_numbering() -> None:
    limit = len("You are a calculator.State the final answer to the following arithmetic problem: 1 + 1 =")

    sums = load_tasks([describe("arithmetic", {}, MinusSign(), limit)], MinusSign(), limit)
    left = [MinusSign().decode(item.prompt_ids) for item in (*map(sums.item, range(sums.size)), *sums.held_out)]

    assert len(set(left)) == 100
    assert all(" + " in question for question in left)
    assert describe("arithmetic", {}, MinusSign(), limit + 2).size == 136


def test_a_run_without_any_short_prompt_cannot_be_made(byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="task residues: 0 prompts of at most 5 tokens"):
        describe("residues", {}, byte_tokenizer, 5)


def test_a_node_that_removes_other_prompts_says_the_size(specs: list[TaskSpec], byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(SpecMismatch, match=r"tasks\[0\] \(residues\), size: the run says 10, this node makes 0"):
        load_tasks(specs, byte_tokenizer, 5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "chess"}, r"tasks\[0\] \(chess\), name: this node knows arithmetic, lottery, residues, not chess"),
        ({"version": 2}, r"tasks\[0\] \(residues\), version: the run says 2, this node makes 1"),
        ({"scorer_version": 3}, "scorer_version: the run says 3, this node makes 1"),
        ({"size": 11}, "size: the run says 11, this node makes 10"),
        ({"dataset_digest": "ab" * 32}, f"dataset_digest: the run says {'ab' * 32}, this node makes "),
        ({"config": {"train": 10, "held_out": 3, "depth": 1}}, "config, depth: "),
        ({"config": {"train": 10, "held_out": 3, "seed": 1}}, "dataset_digest: "),
    ],
)
def test_a_difference_is_named(
    specs: list[TaskSpec], byte_tokenizer: Tokenizer, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(SpecMismatch, match=message):
        load_tasks([changed(specs[0], **fields)], byte_tokenizer, 256)


def test_another_tokenizer_is_noticed_by_the_digest(specs: list[TaskSpec], tiny_tokenizer: Tokenizer) -> None:
    with pytest.raises(SpecMismatch, match=r"tasks\[0\] \(arithmetic\), dataset_digest"):
        load_tasks([specs[1]], tiny_tokenizer, 256)


@pytest.mark.parametrize(("name", "config"), [("chess", {}), ("residues", {"train": 0}), ("arithmetic", {"held": 1})])
def test_a_new_run_cannot_name_what_no_node_can_build(
    byte_tokenizer: Tokenizer, name: str, config: dict[str, int]
) -> None:
    with pytest.raises(ConfigError, match=f"task {name}: "):
        describe(name, config, byte_tokenizer, 256)


def test_the_fuel_limit_is_the_runs(specs: list[TaskSpec], byte_tokenizer: Tokenizer) -> None:
    short = load_tasks([changed(specs[0], fuel_limit=1)], byte_tokenizer, 256)

    assert short.score(0, (16, 17, 17, 17), EOS) == 1.0
