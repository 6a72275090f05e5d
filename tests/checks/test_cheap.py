"""The checks that every validator makes of every leaf: each refuses what it is for, and honest work passes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hashing import merkle
from ledger.base import WHOLE_FILE, Digest
from node.checks.base import Subject, cheap, cheap_leaf
from node.checks.schema import read_file
from node.rollouts.file import encode_file, preimage
from node.verdicts import Accepted, Check, Rejected, Undecided

Alter = Callable[..., Subject]
EOS = 2


def claiming(subject: Subject, **changes: object) -> Subject:
    """`subject` whose commitment says something else."""
    return replace(subject, claim=replace(subject.claim, **changes))  # type: ignore[arg-type]


def refusal(subject: Subject) -> tuple[Check, int]:
    verdict = cheap(subject)
    assert isinstance(verdict, Rejected), verdict
    return verdict.check, verdict.leaf


def test_an_honest_submission_passes(case: Any) -> None:
    assert cheap(case.subject) == Accepted()
    for leaf, rollout in enumerate(case.subject.rollouts):
        assert cheap_leaf(case.subject, leaf, rollout) == Accepted()


# --- 1, schema


def test_a_file_that_does_not_parse_is_rejected_as_a_whole(case: Any) -> None:
    data = encode_file(case.subject.rollouts)

    assert read_file(data, case.subject.spec) == case.subject.rollouts
    verdict = read_file(data[:-1], case.subject.spec)
    assert isinstance(verdict, Rejected)
    assert (verdict.check, verdict.leaf) == (Check.SCHEMA, WHOLE_FILE)


@pytest.mark.parametrize(
    "changes",
    [{"index": 0}, {"group": 1}, {"finish": 2}, {"logprobs": (-1.0,)}, {"proofs": ()}, {"reward": float("nan")}],
)
def test_a_rollout_that_no_file_can_hold_is_rejected(alter: Alter, changes: dict[str, object]) -> None:
    assert refusal(alter(1, **changes)) == (Check.SCHEMA, WHOLE_FILE)


def test_a_proof_of_another_length_is_rejected_by_schema(case: Any) -> None:
    rollouts = list(case.subject.rollouts)
    rollouts[0] = replace(rollouts[0], proofs=(b"\xff" * 257,))

    assert refusal(replace(case.subject, rollouts=tuple(rollouts))) == (Check.SCHEMA, WHOLE_FILE)


def test_a_missing_row_is_rejected(case: Any) -> None:
    assert refusal(replace(case.subject, rollouts=case.subject.rollouts[:3]))[0] == Check.SCHEMA


# --- 2, root


def test_another_root_is_rejected(case: Any) -> None:
    assert refusal(claiming(case.subject, root=Digest(bytes(32)))) == (Check.ROOT, WHOLE_FILE)


@pytest.mark.parametrize("more", [-1, 1])
def test_other_units_are_rejected(case: Any, more: int) -> None:
    verdict = cheap(claiming(case.subject, units=case.subject.claim.units + more))

    # outputs 6, 40, 35, 40 after prompts of 2: 4 o + 2 (2 o + o (o - 1) / 2), and 2 for each group's prompt
    units = sum(4 * o + 2 * (2 * o + o * (o - 1) // 2) for o in (6, 40, 35, 40)) + 4
    assert isinstance(verdict, Rejected)
    assert (verdict.check, verdict.measured, verdict.threshold) == (
        Check.ROOT,
        f"{units} units",
        f"{units + more} units",
    )


# --- 3, assignment


def test_another_prompt_than_the_seeds_is_rejected_and_its_leaf_named(case: Any, alter: Alter) -> None:
    item = case.subject.rollouts[2].prompt_ids[0]

    assert refusal(alter(2, prompt_ids=((item + 1) % 500, 7))) == (Check.ASSIGNMENT, 2)
    assert refusal(alter(3, prompt_ids=(item,))) == (Check.ASSIGNMENT, 3)


def test_another_beacon_would_have_drawn_other_prompts(case: Any) -> None:
    assert refusal(claiming(case.subject, beacon=Digest(b"\x56" * 32)))[0] == Check.ASSIGNMENT


# --- 4, bounds


def test_a_token_outside_the_vocabulary_is_rejected(case: Any, alter: Alter) -> None:
    output = case.subject.rollouts[1].output_ids

    assert refusal(alter(1, output_ids=(1000, *output[1:]))) == (Check.BOUNDS, 1)
    assert cheap(alter(1, output_ids=(999, *output[1:]))) == Accepted()


@pytest.mark.parametrize("proof", [bytes(258), b"\xff" * 258, b"\xff\xd9" + b"\xff" * 256])
def test_a_proof_out_of_range_is_rejected_without_an_audit(alter: Alter, proof: bytes) -> None:
    assert refusal(alter(0, proofs=(proof,))) == (Check.BOUNDS, 0)


def test_bounds_refuse_on_their_own_what_a_file_cannot_hold(case: Any) -> None:
    good = case.subject.rollouts[0]
    for changes in (
        {"output_ids": ()}, {"output_ids": (5,) * 41}, {"logprobs": ()}, {"reward": float("inf")}, {"reward": -0.0},
        {"finish": 7}, {"proofs": ()}, {"logprobs": (float("nan"),) * 6}, {"output_ids": (-1,) * 6},
    ):  # fmt: skip
        verdict = cheap_leaf(case.subject, 0, replace(good, **changes))
        assert isinstance(verdict, Rejected), changes
        assert verdict.check == Check.BOUNDS


# --- 6, reward


def test_a_reward_is_rejected_when_the_scorer_gives_another(case: Any, alter: Alter) -> None:
    assert refusal(alter(3, reward=1.0)) == (Check.REWARD, 3)


def test_a_reward_is_compared_as_float32(case: Any, alter: Alter) -> None:
    item = case.subject.rollouts[1].prompt_ids[0]
    output = (item,) * 13 + (5,) * 27  # 13 / 40 has no exact binary form

    assert cheap(alter(1, output_ids=output, reward=13 / 40)) == Accepted()
    assert refusal(alter(1, output_ids=output, reward=13 / 40 + 1e-6)) == (Check.REWARD, 1)


def test_a_scorer_that_gives_no_number_decides_nothing(case: Any) -> None:
    class Broken(type(case.subject.tasks)):  # type: ignore[misc]
        def score(self, index: int, output_ids: object, finish: int) -> float:
            return float("nan")

    assert isinstance(cheap(replace(case.subject, tasks=Broken())), Undecided)


# --- 7, termination


def test_an_answer_cut_short_is_rejected(case: Any, alter: Alter) -> None:
    output = case.subject.rollouts[0].output_ids

    assert refusal(alter(0, output_ids=(*output[:-1], 9))) == (Check.TERMINATION, 0)


def test_tokens_after_an_eos_id_are_rejected(case: Any, alter: Alter) -> None:
    output = case.subject.rollouts[1].output_ids

    assert refusal(alter(1, output_ids=(*output[:5], EOS, *output[6:]))) == (Check.TERMINATION, 1)


def test_a_finish_that_does_not_fit_is_rejected(case: Any, alter: Alter) -> None:
    output = case.subject.rollouts[1].output_ids

    assert refusal(alter(0, finish=1)) == (Check.TERMINATION, 0)
    assert refusal(alter(1, finish=0)) == (Check.TERMINATION, 1)
    assert refusal(alter(1, output_ids=(*output[:-1], EOS))) == (Check.TERMINATION, 1)


def test_an_eos_id_as_last_permitted_token_finishes_with_0(case: Any, alter: Alter) -> None:
    output = case.subject.rollouts[1].output_ids

    assert cheap(alter(1, output_ids=(*output[:-1], EOS), finish=0)) == Accepted()


# --- Order


def test_the_lowest_code_is_named_and_then_the_lowest_leaf(case: Any) -> None:
    rollouts = list(case.subject.rollouts)
    rollouts[0] = replace(rollouts[0], finish=1)  # 7
    rollouts[1] = replace(rollouts[1], reward=1.0)  # 6
    rollouts[3] = replace(rollouts[3], reward=1.0)  # 6
    hashes = [merkle.leaf_hash(preimage(rollout, leaf, 4)) for leaf, rollout in enumerate(rollouts)]
    subject = replace(claiming(case.subject, root=Digest(merkle.root(hashes))), rollouts=tuple(rollouts))

    assert refusal(subject) == (Check.REWARD, 1)
