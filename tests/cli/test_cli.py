"""The command line as a user meets it: real processes, real files, exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.keys import create
from node.files import locked
from tests.cli.command import PASSWORD, command, finished, process

KEY = "0x" + "11" * 32
ADDRESS = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"  # of that key; any Ethereum library computes it
HEAVY = ("torch", "numba", "vllm", "transformers", "libp2p", "web3", "pyarrow", "reasoning_gym", "rich")


def run(*words: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "INTELLECT_NODE_HOME": str(home), "INTELLECT_NODE_PASSWORD": "correct horse", **environment},
        check=False,
    )


@contextmanager
def dead_port() -> Iterator[int]:
    """A port where nobody listens, nor can meanwhile: it is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_importing_the_command_line_is_light() -> None:
    code = f"import cli.main, sys; print([name for name in {HEAVY!r} if name in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


def test_help_names_every_command(tmp_path: Path) -> None:
    answer = run("--help", home=tmp_path)

    assert answer.returncode == 0
    for name in ("join", "validate", "train", "relay", "devnet", "deploy", "run", "wallet", "status", "faucet",
                    "rewards", "rollouts", "checkpoints", "verify", "paths", "purge", "stake",
                    "journal"):  # fmt: skip
        assert f"  {name}" in answer.stdout


def test_a_new_wallet_is_shown_with_its_address(tmp_path: Path) -> None:
    made = json.loads(run("wallet", "new", "mine", "--json", home=tmp_path).stdout)

    shown = json.loads(run("wallet", "show", "mine", "--json", home=tmp_path).stdout)

    assert shown["address"] == made["address"]
    assert Path(made["file"]).stat().st_mode & 0o777 == 0o600
    assert made["address"][2:].lower() in Path(made["file"]).read_text().lower()


def test_an_imported_key_has_its_own_address_and_is_nowhere_in_the_clear(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY + "\n")

    answer = run("wallet", "import", "known", "--key-file", str(key), "--json", home=tmp_path)

    assert json.loads(answer.stdout)["address"] == ADDRESS
    assert "11" * 32 not in answer.stdout + answer.stderr
    assert "11" * 32 not in Path(json.loads(answer.stdout)["file"]).read_text()


@pytest.mark.parametrize("text", ["", "hello", "0x" + "00" * 32, "0x" + "ff" * 32, "11" * 31])
def test_a_key_that_is_none_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    key = tmp_path / "key"
    key.write_text(text)

    answer = run("wallet", "import", "known", "--key-file", str(key), home=tmp_path)

    assert answer.returncode == 2
    assert answer.stderr.startswith("error: ")
    assert "Traceback" not in answer.stderr
    assert len(text) < 6 or text not in answer.stderr


def test_a_wallet_is_never_overwritten(tmp_path: Path) -> None:
    first = run("wallet", "new", "mine", home=tmp_path)
    second = run("wallet", "new", "mine", home=tmp_path)

    assert (first.returncode, second.returncode) == (0, 2)
    assert "never overwritten" in second.stderr


@pytest.mark.parametrize("words", [("status", "--run", "1"), ("rewards", "show")])
def test_a_missing_wallet_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    answer = run(*words, "--wallet", "nobody", home=tmp_path)

    assert answer.returncode == 2
    assert "nobody" in answer.stderr and "does not exist" in answer.stderr


def test_a_chain_that_does_not_answer_means_try_again(tmp_path: Path) -> None:
    with dead_port() as port:
        answer = run("run", "show", "--run", "1", "--rpc", f"http://127.0.0.1:{port}", home=tmp_path)

    assert answer.returncode == 75
    assert "Traceback" not in answer.stderr


def test_a_chain_without_contracts_says_what_to_do(tmp_path: Path) -> None:
    import asyncio

    from ledger.devnet import Anvil

    async def asked() -> subprocess.CompletedProcess[str]:
        async with Anvil() as anvil:
            words = ("run", "show", "--run", "1", "--rpc", anvil.rpc_url)
            return await asyncio.to_thread(run, *words, home=tmp_path)

    answer = asyncio.run(asked())

    assert answer.returncode == 2
    assert "--deployment" in answer.stderr and "intellect-node deploy" in answer.stderr


def test_a_node_that_nobody_could_reach_is_told_so_before_it_does_anything(tmp_path: Path) -> None:
    run("wallet", "new", "mine", home=tmp_path)

    answer = run("relay", "--wallet", "mine", "--run", "1", home=tmp_path)

    assert answer.returncode == 2
    assert "--advertise" in answer.stderr


def test_an_address_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    create(tmp_path / "wallets" / "owner.json", PASSWORD, iterations=1)
    here = ("--wallet", "owner", "--rpc", "http://127.0.0.1:1")

    for text in ("alice", ADDRESS[:-1], ADDRESS[:-1] + "a"):
        for words in (
            ("run", "create", "--trainer", text, "--validator", ADDRESS),
            ("run", "approve", text, "--run", "1"),
        ):
            answer = command(*words, *here, home=tmp_path)
            assert answer.code == 2
            assert answer.said.startswith(f"error: {text!r} is no address: expected 0x and 40 hexadecimal digits")


def test_a_machine_without_anvil_is_the_users_to_change(tmp_path: Path) -> None:
    answer = run("devnet", "--model", "tiny", home=tmp_path, ANVIL=str(tmp_path / "none"))

    assert answer.returncode == 2
    assert "which is no file" in answer.stderr and "Traceback" not in answer.stderr


def test_an_unknown_fraud_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    answer = run("devnet", "--cheat", "charm", home=tmp_path)

    assert answer.returncode == 2
    assert "other-model, edited-tokens, forged-reward, none" in answer.stderr


def test_a_folder_that_no_network_can_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    used = tmp_path / "used"
    (used / "homes").mkdir(parents=True)

    taken = command("devnet", "--model", "tiny", "--folder", file, home=tmp_path)
    second = command("devnet", "--model", "tiny", "--folder", used, home=tmp_path)

    assert (taken.code, taken.said) == (
        2,
        f"error: folder {file} cannot be written to (a file stands where a folder has to be): correct its owner or "
        "mode, or name another one",
    )
    assert second.code == 2
    assert second.said == f"error: an earlier network used folder {used}: name another --folder, or delete it"
    assert file.read_text() == "kept"


def test_whether_the_folder_of_a_network_stays_is_said_at_the_start(tmp_path: Path) -> None:
    here = {"home": tmp_path, "ANVIL": str(tmp_path / "none"), "TMPDIR": str(tmp_path)}  # it ends right after

    passing = run("devnet", "--model", "tiny", **here)  # type: ignore[arg-type]
    kept = run("devnet", "--model", "tiny", "--folder", str(tmp_path / "mine"), **here)  # type: ignore[arg-type]

    assert "(deleted at the end; --folder keeps them)\n" in passing.stdout
    assert f"files and logs: {tmp_path / 'mine'}\n" in kept.stdout
    assert not list(tmp_path.glob("intellect-node-devnet-*")) and (tmp_path / "mine").is_dir()


def test_the_folder_of_a_network_goes_when_it_is_ended_with_ctrl_c(tmp_path: Path) -> None:
    with process("devnet", "--model", "tiny", home=tmp_path, TMPDIR=str(tmp_path), PYTHONUNBUFFERED="1") as running:
        assert running.stdout is not None
        while "deploying" not in running.stdout.readline():
            assert running.poll() is None
        assert len(list(tmp_path.glob("intellect-node-devnet-*"))) == 1
        running.send_signal(signal.SIGINT)
        answer = finished(running)

    assert answer.code == 1
    assert not list(tmp_path.glob("intellect-node-devnet-*"))


def test_paths_lie_under_the_home_folder_and_purge_keeps_wallets(tmp_path: Path) -> None:
    run("wallet", "new", "mine", home=tmp_path)
    state = tmp_path / "runs" / "1-aa-1" / "0xbb"
    state.mkdir(parents=True)
    (state / "file").write_text("x")

    paths = json.loads(run("paths", "--json", home=tmp_path).stdout)
    purged = run("purge", "--yes", home=tmp_path)

    assert paths["home"] == str(tmp_path)
    assert Path(paths["runs"]) == tmp_path / "runs"
    assert (purged.returncode, purged.stdout) == (0, f"deleted {state}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["wallets"]
    assert (tmp_path / "wallets" / "mine.json").exists()


def test_purge_without_a_yes_deletes_nothing(tmp_path: Path) -> None:
    state = tmp_path / "runs" / "1-aa-1" / "0xbb"
    state.mkdir(parents=True)

    answer = run("purge", home=tmp_path)

    assert answer.returncode == 1
    assert state.exists()


def test_purge_leaves_what_a_running_role_holds(tmp_path: Path) -> None:
    state = tmp_path / "runs" / "1-aa-1" / "0xbb"

    other = tmp_path / "runs" / "1-aa-1" / "0xaa"
    other.mkdir(parents=True)

    with locked(state / "lock"):
        answer = run("purge", "--yes", home=tmp_path)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.endswith("stop it first; nothing was deleted\n")
    assert (state / "lock").exists() and other.exists()


def test_an_engine_that_is_none_is_refused_before_anything_else(tmp_path: Path) -> None:
    answer = run("devnet", "--engine", "abacus", home=tmp_path)

    assert answer.returncode == 2
    assert "transformers" in answer.stderr


def test_no_chain_is_asked_where_no_contracts_are_known(tmp_path: Path) -> None:
    answer = run("run", "show", "--run", "1", home=tmp_path)

    assert answer.returncode == 2
    assert "--deployment" in answer.stderr and "--rpc" in answer.stderr


def test_a_password_that_cannot_be_asked_for_is_missed_by_name(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "INTELLECT_NODE_PASSWORD"}

    answer = subprocess.run(
        [sys.executable, "-m", "cli", "wallet", "new", "mine", "--home", str(tmp_path)],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment, check=False,
    )  # fmt: skip

    assert answer.returncode == 2
    assert "INTELLECT_NODE_PASSWORD" in answer.stderr and "--password-file" in answer.stderr


def test_a_deployment_file_is_never_overwritten(tmp_path: Path) -> None:
    run("wallet", "new", "mine", home=tmp_path)
    kept = tmp_path / "deployment.json"
    kept.write_text("{}")

    answer = run("deploy", "--wallet", "mine", "--rpc", "http://127.0.0.1:9", "--out", str(kept), home=tmp_path)

    assert answer.returncode == 2
    assert kept.read_text() == "{}"
