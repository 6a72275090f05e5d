"""With `--log-json` every line of standard error is a JSON object, however early a command ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.base import Address
from ledger.deployment import Deployment
from ledger.keys import create
from tests.cli.command import PASSWORD, command

CONTRACT = Address("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")  # EIP-55's first example
NOBODY_THERE = ("--rpc", "http://127.0.0.1:9")
HOST = ("--host", "127.0.0.1")

BREAKING = """
import warnings
from cli.main import app, main
from cli.roles import LogJson

@app.command()
def break_down(log_json: LogJson = False) -> None:
    warnings.warn("of a library")
    raise ZeroDivisionError("hostile\\nerror: forged")

main()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    create(tmp_path / "wallets" / "mine.json", PASSWORD, iterations=1)
    Deployment(31337, CONTRACT, CONTRACT, CONTRACT, 0, 0).save(tmp_path / "deployment.json")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("join", "--wallet", "nope", "--run", "1", *NOBODY_THERE), 2, "does not exist"),
        (("join", "--wallet", "mine", "--run", "1", *NOBODY_THERE), 2, "--advertise"),
        (("relay", "--wallet", "mine", "--run", "1", "--rpc", "foo://secret-x", *HOST), 2, "http(s) URL"),
        (("validate", "--wallet", "mine", "--run", "1", "--engine", "nonsense", *HOST, *NOBODY_THERE), 2, "nonsense"),
        (("train", "--wallet", "mine", "--run", "1", "--model", "/nonexistent", *NOBODY_THERE), 2, "/nonexistent"),
        (("relay", "--wallet", "mine", "--run", "1", *HOST, *NOBODY_THERE), 75, "nobody answers there"),
        (("validate", "--wallet", "mine", "--run", "x"), 2, "--run"),
        (("relay", "--wallet", "mine"), 2, "--run"),
        (("relay", "--nonsense"), 2, "--nonsense"),
        (("nonsense",), 2, "nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_error_that_ends_a_command_is_one_json_line(
    home: Path, words: tuple[str, ...], code: int, reason: str
) -> None:
    deployment = str(home / "deployment.json")
    answer = command(*words, "--log-json", home=home, INTELLECT_NODE_DEPLOYMENT=deployment)

    assert answer.code == code, answer.err
    (line,) = [json.loads(line) for line in answer.err.splitlines()]
    roles = {"join": "worker", "validate": "validator", "train": "trainer", "relay": "relay", "nonsense": ""}
    assert (line["event"], line["level"], line["role"]) == ("error", "error", roles[words[0]])
    assert reason in line["reason"]


def test_a_wrong_password_is_one_json_line(home: Path) -> None:
    words = ("join", "--wallet", "mine", "--run", "1", *NOBODY_THERE, "--log-json")
    answer = command(*words, home=home, INTELLECT_NODE_PASSWORD="other")

    (line,) = [json.loads(line) for line in answer.err.splitlines()]
    assert answer.code == 2 and "password" in line["reason"] and line["role"] == "worker"


@pytest.mark.parametrize("json_lines", [True, False])
def test_a_bug_has_its_trace_in_a_field_of_the_one_line_and_ends_with_70(home: Path, json_lines: bool) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", BREAKING, "break-down", *["--log-json"][:json_lines]],
        env={**os.environ, "INTELLECT_NODE_HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ended.returncode == 70
    lines = ended.stderr.splitlines()
    if json_lines:
        warned, bug = map(json.loads, lines)
        assert "of a library" in warned["event"]
        assert "this is a bug in intellect-node (ZeroDivisionError)" in bug["reason"]
        assert "break_down" in bug["traceback"] and "hostile" in bug["traceback"]
    else:
        assert "Traceback (most recent call last):" in lines
        assert lines[-1].startswith("error: this is a bug in intellect-node (ZeroDivisionError)")
