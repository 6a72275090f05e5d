"""Every state of a submission with its reason, its times and its figures, worked out by hand."""

import pytest

from ledger.base import (
    UNDECIDED,
    WHOLE_FILE,
    Address,
    Block,
    Convicted,
    Digest,
    Reported,
    Run,
    RunId,
    RunParams,
    SlashExecuted,
    State,
    Submitted,
    Version,
    Windows,
)
from node.outcomes import Known, decided_by, outcome, why
from node.record import Record, Submission
from node.verdicts import Check, Rejected

NODE, ONE, TWO, THREE = (Address("0x" + f"{number:02x}" * 20) for number in range(1, 5))
WINDOWS = Windows(available=6, audit=10, settle_by=100, confirm=20, contest=8, panel=0, grace=30)
PARAMS = RunParams(NODE, (ONE, TWO, THREE), 2, 1, 1, 0, 1, 100, 2, 2, 0, 0, WINDOWS)
COMMITMENT, ZERO = Digest(b"\x07" * 32), Digest(bytes(32))
MADE = Submitted(Block(7, 70), RunId(1), COMMITMENT, NODE, Version(2), 3, ZERO, 5, ZERO)
FINDING = Rejected(Check.TOPLOC, 4, "115, 50.06, 54", "19, 4.94, 5", "chunk 0")
SEEN = Known((ONE, TWO), FINDING, Digest(b"\x0e" * 32))


def record(now: int) -> Record:
    found = Record(Run(RunId(1), NODE, PARAMS, b"", ZERO, 0))
    found.head = Block(now, now)
    return found


def report(validator: Address, leaf: int, time: int, check: int = Check.TOPLOC, count: int = 1) -> Reported:
    return Reported(Block(time, time), RunId(1), COMMITMENT, validator, leaf, check, ZERO, count)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (75, "waiting for the audit, drawn at block time 76; can be paid from block time 86"),  # 70 + 6, + 10
        (76, "being audited; can be paid from block time 86"),
        (86, "waiting for a quorum's signatures; expires after block time 170"),  # 70 + 100
        (
            171,
            "its time was over at block time 170: it expires once a validator, or a minute later its worker, says so",
        ),
    ],
)
def test_an_open_submission_says_what_it_waits_for_and_until_when(now: int, words: str) -> None:
    assert why(record(now), Submission(MADE), Known()) == words


def test_who_holds_the_file_is_said_where_it_is_known() -> None:
    told = why(record(80), Submission(MADE), Known((ONE,)))

    assert told == "being audited; can be paid from block time 86; held by 1 of 3 validators (2 needed)"


def test_a_fault_says_how_many_votes_of_how_many_and_until_when() -> None:
    reported = Submission(MADE, State.FAULTED, reports=(report(ONE, 4, 80), report(TWO, 9, 90), report(THREE, 9, 95)))

    told = why(record(100), reported, Known())

    # the leaf that was opened last was opened at 90, after the audit was due at 86: 90 + 20
    assert told == "reported: 2 of 2 votes for toploc on rollout 9; void without a quorum by block time 110"
    assert decided_by(record(100), Submission(MADE, State.FAULTED, reports=(report(ONE, 4, 80),))) == 86 + 20


@pytest.mark.parametrize(
    ("submission", "known", "words"),
    [
        (Submission(MADE, State.SETTLED, 9), Known(), "accepted by a quorum and paid"),
        (
            Submission(
                MADE, State.FAULTED, check=8, conviction=Convicted(Block(9, 90), RunId(1), COMMITMENT, 4, 8, 98),
                reports=(report(ONE, 4, 80), report(TWO, 4, 90)),
            ),
            SEEN,
            "convicted: 2 of 2 votes for toploc on rollout 4, measured 115, 50.06, 54, permitted 19, 4.94, 5 (chunk 0)"
            "; the slash can be executed from block time 98",
        ),
        (
            Submission(MADE, State.VOIDED, check=6),
            Known(None, Rejected(Check.REWARD, 1, "0.5", "0.25", "reward"), None),
            "void, no pay, bond burnt: reward, measured 0.5, permitted 0.25 (reward)",
        ),
        (Submission(MADE, State.VOIDED, check=1), Known(), "void, no pay, bond burnt: schema"),
        (
            Submission(MADE, State.VOIDED, check=UNDECIDED, reports=(report(ONE, WHOLE_FILE, 80, 9),)),
            Known(),
            "void, nothing burnt: 1 of 2 votes for sampling on the whole file and no quorum agreed in time",
        ),
        (
            Submission(MADE, State.EXPIRED),
            Known((ONE,)),
            "no quorum signed by block time 170: nothing paid, nothing lost; held by 1 of 3 validators (2 needed)",
        ),
        (
            Submission(MADE, State.SLASHED, check=9, reports=(report(ONE, 4, 80, 9), report(TWO, 4, 81, 9))),
            Known(),
            "slashed: 2 of 2 votes for sampling on rollout 4",
        ),
    ],
)  # fmt: skip
def test_every_end_has_its_reason_in_words(submission: Submission, known: Known, words: str) -> None:
    assert why(record(200), submission, known) == words


def test_times_are_worded_by_whoever_asks() -> None:
    told = why(record(80), Submission(MADE), Known(), lambda time, now: f"{time - now} s from now")

    assert told == "being audited; can be paid from 6 s from now"


def test_an_outcome_has_base_units_as_text_and_times_as_numbers() -> None:
    slash = SlashExecuted(Block(9, 99), RunId(1), COMMITMENT, NODE, 25 * 10**18, Digest(b"\x0f" * 32))
    slashed = Submission(
        MADE,
        State.SLASHED,
        check=8,
        slash=slash,
        concluded=slash.block,
        reports=(report(ONE, 4, 80), report(TWO, 4, 81)),
    )

    found = outcome(record(200), slashed, SEEN)

    assert found.pop("why").startswith("slashed: 2 of 2 votes for toploc on rollout 4, measured 115")
    assert found == {
        "version": 2, "slot": 3, "commitment": "0x" + "07" * 32, "node": NODE, "units": 5, "state": "slashed",
        "submitted_at": 70, "due": 86, "expires_at": 170, "concluded_at": 99, "reward": "0", "holders": [ONE, TWO],
        "quorum": 2, "validators": 3, "votes": 2, "check": "toploc", "leaf": 4, "measured": "115, 50.06, 54",
        "permitted": "19, 4.94, 5", "what": "chunk 0", "evidence": "0x" + "0e" * 32,
        "slashed": "25000000000000000000", "transaction": "0x" + "0f" * 32,
    }  # fmt: skip


def test_what_nobody_knows_is_null() -> None:
    found = outcome(record(80), Submission(MADE), Known())

    missing = {key for key, value in found.items() if value is None}
    assert missing == {
        "concluded_at", "holders", "check", "leaf", "measured", "permitted", "what", "evidence", "transaction",
    }  # fmt: skip
