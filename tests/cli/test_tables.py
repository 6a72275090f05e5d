"""The closing table as people read it: units, what is measured and permitted, no line over 100 columns."""

import pytest

from cli.tables import closing
from node.devnet.report import Report

SUMMARY = {
    "seconds": 386.3, "output_tokens": 8780, "states": {"settled": 22, "slashed": 1},
    "rewards": {"worker-1": "18480123000000000000", "cheater": "0"}, "claimed": "34510000000000000000",
    "slashes": [{"node": "cheater", "amount": str(1371 * 10**16), "check": "TOPLOC", "transaction": "0x" + "ab" * 32}],
    "held_out": {"0": {"mean": 0.129, "standard_error": 0.024, "prompts": 64, "samples": 4}},
}  # fmt: skip
STEPS = [
    {"version": version, "step": version or None, "held_by": 7, "submissions": 5, "accepted": 4, "rollouts": 64,
     "reward": 0.1406}
    for version in (0, 1)
]  # fmt: skip
VERDICT = {
    "node": "cheater", "version": 0, "slot": 0, "state": "slashed", "check": "TOPLOC", "measured": "115, 50.06, 54",
    "permitted": "19, 4.94, 5", "faults_signed": 2,
    "what": "chunk 0: exponent and sign mismatches of 128, mantissa error mean, median",
}  # fmt: skip


def test_the_closing_table_has_units_and_fits_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    closing(Report(SUMMARY, STEPS, [VERDICT], [], [[0.1]]))

    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    for text in (
        "386.3 s", "worker-1 18.480123 tSTAKE", "cheater 0 tSTAKE", "34.51 tSTAKE", "8780 of the model",
        "12.9% ± 2.4 (64 x 4)", "measured 115, 50.06, 54", "permitted 19, 4.94, 5", "│ base ", "mean reward",
        "cheater lost 13.71 tSTAKE for TOPLOC", "permitted: the widest that honest engines showed",
        "step: the optimiser step that made the version", "all as it should be",
    ):  # fmt: skip
        assert text in shown


def test_what_nobody_measured_leaves_its_place_empty(capsys: pytest.CaptureFixture[str]) -> None:
    expired = {**VERDICT, "state": "expired", "check": None, "measured": None, "permitted": None, "what": None}

    closing(Report({**SUMMARY, "slashes": []}, STEPS, [expired], ["a submission has no final state"], [[]]))

    shown = capsys.readouterr().out
    assert "expired" in shown and "None" not in shown
    assert "NOT AS IT SHOULD BE: a submission has no final state" in shown
    assert "all as it should be" not in shown
