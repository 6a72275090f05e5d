"""Evidence: what it holds, what is refused, and what looking at it again finds."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ledger.base import WHOLE_FILE, Digest
from ledger.messages import MAX_CHECK
from node.checks.base import Subject, cheap
from node.checks.evidence import Evidence, Versions, gather
from node.checks.reopening import reopen
from node.errors import Malformed
from node.rollouts.file import preimage
from node.verdicts import Accepted, Check, Rejected, Undecided

VERSIONS = Versions("smollm2", "transformers 5.24 cpu", "0.1.0")
TOPLOC = Rejected(Check.TOPLOC, 2, "57, 12.1, 9", "20, 5, 4", "chunk 0")


def evidence_of(subject: Subject, rejected: Rejected, judged: tuple[int, ...] = ()) -> Evidence:
    rows = len(subject.rollouts)
    preimages = [preimage(rollout, leaf, rows) for leaf, rollout in enumerate(subject.rollouts)]
    return gather(subject.claim, rejected, preimages, judged, 1234, VERSIONS)


def edited(evidence: Evidence, edit: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(evidence.encode())
    edit(value)
    return rfc8785.dumps(value)


@pytest.fixture(scope="module")
def evidence(case: Any) -> Evidence:
    return evidence_of(case.subject, TOPLOC)


def test_evidence_survives_its_bytes_and_is_named_by_their_blake3(evidence: Evidence) -> None:
    data = evidence.encode()

    assert Evidence.parse(data) == evidence
    assert evidence.digest == blake3(data).digest()


def test_evidence_holds_every_input_of_seed_and_commitment(case: Any, evidence: Evidence) -> None:
    value = json.loads(evidence.encode())

    assert value["claim"] == {
        "chain_id": 31337, "contract": "0x" + "11" * 20, "run": 7, "spec_digest": case.subject.spec.digest.hex(),
        "manifest_root": "33" * 32, "node": "0x" + "44" * 20, "version": 3, "slot": 2,
        "root": case.subject.claim.root.hex(), "units": case.subject.claim.units, "beacon": "55" * 32,
    }  # fmt: skip
    assert (value["beacon_block"], value["check"], value["leaf"], value["rows"]) == (1234, 8, 2, 4)
    assert [exhibit["leaf"] for exhibit in value["exhibits"]] == [2]
    assert value["versions"] == {"code": "0.1.0", "engine": "transformers 5.24 cpu", "model": "smollm2"}


def test_evidence_against_a_whole_file_shows_the_leaves_judged_together(case: Any) -> None:
    whole = Rejected(Check.SAMPLING, WHOLE_FILE, "25", "20.72", "")

    assert [exhibit.leaf for exhibit in evidence_of(case.subject, whole, (0, 3)).exhibits] == [0, 3]


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "unknown field": lambda e: e.update(extra=1),
    "missing field": lambda e: e.pop("rows"),
    "another protocol": lambda e: e.update(protocol=2),
    "unknown check": lambda e: e.update(check=11),
    "negative check": lambda e: e.update(check=-1),
    "leaf too large": lambda e: e.update(leaf=2**32),
    "no rows": lambda e: e.update(rows=0),
    "a float": lambda e: e.update(beacon_block=1.5),
    "text for a number": lambda e: e.update(beacon_block="1234"),
    "long text": lambda e: e.update(detail="x" * 1001),
    "short digest": lambda e: e["claim"].update(root="00"),
    "upper-case digest": lambda e: e["claim"].update(beacon="AB" * 32),
    "malformed address": lambda e: e["claim"].update(node="0x12"),
    "address with newline": lambda e: e["claim"].update(node="0x" + "44" * 20 + "\n"),
    "too many units": lambda e: e["claim"].update(units=2**40),
    "bad base64": lambda e: e["exhibits"][0].update(preimage="*"),
    "base64 without padding": lambda e: e["exhibits"][0].update(preimage="QQ"),
    "base64 with spare bits": lambda e: e["exhibits"][0].update(preimage="QR=="),
    "base64 that is not ASCII": lambda e: e["exhibits"][0].update(preimage="é==="),
    "long path": lambda e: e["exhibits"][0].update(path=["00" * 32] * 33),
    "leaf twice": lambda e: e["exhibits"].append(e["exhibits"][0]),
}


@pytest.mark.parametrize("name", EDITS)
def test_evidence_is_refused_when_a_field_is_out_of_range(evidence: Evidence, name: str) -> None:
    with pytest.raises(Malformed):
        Evidence.parse(edited(evidence, EDITS[name]))


def test_one_wrong_exhibit_is_enough(evidence: Evidence) -> None:
    with pytest.raises(Malformed) as caught:
        Evidence.parse(edited(evidence, lambda e: e.update(exhibits=[1] * 60_000)))

    cause = caught.value.__cause__
    assert isinstance(cause, ValidationError)
    assert cause.error_count() == 1


def test_evidence_is_refused_when_it_is_not_canonical(evidence: Evidence) -> None:
    data = evidence.encode()

    for other in (b" " + data, data + b"\n", json.dumps(json.loads(data)).encode(), b"", b"{}", b"[" * 100_000):
        with pytest.raises(Malformed):
            Evidence.parse(other)


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=50)
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        Evidence.parse(data)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_evidence_with_some_bytes_changed_is_refused_or_parses_to_itself(
    evidence: Evidence, data: st.DataObject
) -> None:
    changed = bytearray(evidence.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        parsed = Evidence.parse(bytes(changed))
    except Malformed:
        return
    assert parsed.encode() == bytes(changed)


@given(st.text(max_size=40), st.integers(0, 2**53 - 1))
@settings(deadline=None, max_examples=30)
def test_any_text_survives(evidence: Evidence, text: str, block: int) -> None:
    other = replace(evidence, rejected=replace(TOPLOC, detail=text), beacon_block=block)

    assert Evidence.parse(other.encode()) == other


# --- Looking again


def test_a_case_for_the_model_is_reopened_undecided_with_its_rollout_and_seed(case: Any, evidence: Evidence) -> None:
    reopened = reopen(evidence, case.subject.claim.commitment, case.subject.spec, case.subject.tasks)

    assert isinstance(reopened.verdict, Undecided)
    assert reopened.rollouts == {2: case.subject.rollouts[2]}
    assert reopened.subject.seed == case.subject.seed


@pytest.mark.parametrize("check", Check)
def test_only_a_fault_that_the_shown_leaf_disproves_is_called_false(case: Any, check: Check) -> None:
    subject = case.subject
    accused = evidence_of(subject, Rejected(check, 1, "1", "0", ""))

    verdict = reopen(accused, subject.claim.commitment, subject.spec, subject.tasks).verdict

    disproved = {Check.ASSIGNMENT, Check.BOUNDS, Check.REWARD, Check.TERMINATION}
    assert isinstance(verdict, Accepted if check in disproved else Undecided)


def test_every_code_of_a_check_may_be_signed() -> None:
    assert max(Check) == MAX_CHECK


@pytest.mark.parametrize(("changes", "check"), [({"reward": 1.0}, Check.REWARD), ({"finish": 1}, Check.TERMINATION)])
def test_a_cheap_fault_is_found_again(alter: Any, changes: dict[str, object], check: Check) -> None:
    subject = alter(2, **changes)
    found = cheap(subject)
    assert isinstance(found, Rejected)

    reopened = reopen(evidence_of(subject, found), subject.claim.commitment, subject.spec, subject.tasks)

    assert reopened.verdict == found
    assert found.check == check


def test_a_false_accusation_is_seen(case: Any) -> None:
    accused = Rejected(Check.REWARD, 1, "0", "1", "")

    reopened = reopen(
        evidence_of(case.subject, accused), case.subject.claim.commitment, case.subject.spec, case.subject.tasks
    )

    assert reopened.verdict == Accepted()


def test_units_are_recomputed_when_all_leaves_are_shown(case: Any) -> None:
    subject = replace(case.subject, claim=replace(case.subject.claim, units=case.subject.claim.units + 1))
    found = cheap(subject)
    assert isinstance(found, Rejected)

    reopened = reopen(evidence_of(subject, found, (0, 1, 2, 3)), subject.claim.commitment, subject.spec, subject.tasks)

    assert isinstance(reopened.verdict, Rejected)
    assert reopened.verdict.check == Check.ROOT


def test_a_leaf_that_does_not_parse_is_a_schema_fault(alter: Any) -> None:
    subject = alter(2, logprobs=(-1.0,))
    found = cheap(subject)
    assert isinstance(found, Rejected)

    reopened = reopen(evidence_of(subject, found, (2,)), subject.claim.commitment, subject.spec, subject.tasks)

    assert isinstance(reopened.verdict, Rejected)
    assert (reopened.verdict.check, reopened.verdict.leaf) == (Check.SCHEMA, WHOLE_FILE)


def test_a_wrong_beacon_is_left_to_the_chain(case: Any) -> None:
    rejected = Rejected(Check.WITHHELD, WHOLE_FILE, "55", "56", "")

    reopened = reopen(
        evidence_of(case.subject, rejected), case.subject.claim.commitment, case.subject.spec, case.subject.tasks
    )

    assert isinstance(reopened.verdict, Undecided)


def test_evidence_about_something_else_is_refused(case: Any, evidence: Evidence) -> None:
    subject = case.subject
    commitment = subject.claim.commitment
    spec = subject.spec.model_copy(update={"max_steps": 11})
    exhibit = evidence.exhibits[0]
    for other, about in (
        (evidence, Digest(bytes(32))),
        (replace(evidence, claim=replace(evidence.claim, slot=3)), commitment),
        (replace(evidence, exhibits=()), commitment),
        (replace(evidence, rows=5), commitment),
        (replace(evidence, exhibits=(replace(exhibit, leaf=1),)), commitment),
        (replace(evidence, exhibits=(replace(exhibit, preimage=exhibit.preimage[:-1] + b"\1"),)), commitment),
        (replace(evidence, exhibits=(replace(exhibit, path=exhibit.path[:-1]),)), commitment),
    ):
        with pytest.raises(Malformed):
            reopen(other, about, subject.spec, subject.tasks)
    with pytest.raises(Malformed, match="specification"):
        reopen(evidence, commitment, spec, subject.tasks)
