"""Where a node keeps its files, what it announces, and that one key runs once."""

import subprocess
import sys
from pathlib import Path

import pytest

from node.config import Home, Settings, StateFolder
from node.errors import ConfigError, StoreError
from node.files import locked, write_atomically

COORDINATOR = "0xABCDEF0123456789abcdef0123456789ABCDEF01"
HOLDER = "import sys\nfrom pathlib import Path\nfrom node.files import locked\n" \
    "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"  # fmt: skip


def test_folders_are_told_apart_by_chain_contract_run_and_key(tmp_path: Path) -> None:
    home = Home(tmp_path)
    state = home.state(84532, COORDINATOR, 7, "0x" + "AB" * 20)

    assert state.folder == tmp_path / "runs" / "84532-abcdef01-7" / ("0x" + "ab" * 20)
    assert home.journal(84532, COORDINATOR, "0x" + "AB" * 20) == (
        tmp_path / "journals" / f"84532-abcdef01-{'0x' + 'ab' * 20}.sqlite"
    )
    names = ["checkpoints", "rollouts", "cases", "evidence", "training", "lock"]
    assert [getattr(state, name) for name in names] == [state.folder / name for name in names]
    assert home.wallets == tmp_path / "wallets"
    assert not list(tmp_path.iterdir())  # made only when something is written


def test_the_home_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTELLECT_NODE_HOME", str(tmp_path / "here"))
    assert Home.default().folder == tmp_path / "here"
    monkeypatch.delenv("INTELLECT_NODE_HOME")
    assert Home.default().folder.name == "intellect-node"


def test_the_announced_url_is_the_one_given_else_that_of_the_address(tmp_path: Path) -> None:
    def announced(**options: str) -> str:
        return Settings(Home(tmp_path), 1, **options).announced(8080)  # type: ignore[arg-type]

    assert announced(host="127.0.0.1") == "http://127.0.0.1:8080"
    assert announced(host="::1") == "http://[::1]:8080"
    assert announced(advertise="https://node.example:9/") == "https://node.example:9"
    for host in ("0.0.0.0", "::"):
        with pytest.raises(ConfigError, match="--advertise http://NAME-OR-ADDRESS"):
            announced(host=host)
    with pytest.raises(ConfigError, match="longer than 256 bytes"):
        announced(advertise="http://" + "a" * 250)


def test_a_second_process_of_the_same_key_is_refused_and_told_why(tmp_path: Path) -> None:
    lock = StateFolder(tmp_path / "state").lock
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        told = f"already runs this key in this run .it holds {lock}.: stop it first"
        with pytest.raises(ConfigError, match=told), locked(lock):
            pass
        holder.kill()
    with locked(lock):  # a killed process holds nothing
        pass
    with locked(lock):
        pass


def test_a_disk_that_refuses_is_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreError, match="file"), locked(tmp_path / "file" / "lock"):
        pass
    with pytest.raises(StoreError, match="file"):
        write_atomically(tmp_path / "file" / "x.json", b"")


def test_a_file_is_written_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "case.json"
    write_atomically(path, b"old")
    write_atomically(path, b"new")

    assert path.read_bytes() == b"new"
    assert [each.name for each in path.parent.iterdir()] == ["case.json"]
