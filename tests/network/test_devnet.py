"""Whole networks on a local chain: real processes, real sockets, a tiny model."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ledger.base import Ledger
from ledger.connection import open_ledger
from node.devnet.network import Show, play
from node.devnet.report import Report


async def connect(rpc_url: str, deployment: Path) -> Ledger:
    return await open_ledger([rpc_url], deployment, None, None)


async def played(folder: Path, cheat: str | None, steps: int = 2, *, libp2p: bool = False) -> tuple[Report, list[str]]:
    said: list[str] = []
    show = Show(folder, "tiny", cheat=cheat, steps=steps, held_out_samples=0, seconds=240, libp2p=libp2p)
    return await play(show, connect, said.append), said


def running(folder: Path) -> list[int]:
    """Processes that have `folder` among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cheat", ["other-model", "edited-tokens"])
async def test_a_cheat_is_slashed_and_honest_work_is_paid(tmp_path: Path, cheat: str) -> None:
    report, said = await played(tmp_path, cheat)

    assert report.failures == []
    assert report.summary["checkpoints"] == 3
    assert {slash["node"] for slash in report.summary["slashes"]} == {"cheater"}
    assert float(report.summary["rewards"]["cheater"]) == 0
    assert float(report.summary["rewards"]["worker-1"]) > 0
    assert float(report.summary["claimed"]) > 0
    assert any("SLASHED" in line for line in said)
    assert running(tmp_path) == []


@pytest.mark.timeout(300)
async def test_a_forged_reward_is_voided_and_costs_no_stake(tmp_path: Path) -> None:
    report, _ = await played(tmp_path, "forged-reward")

    assert report.failures == []
    assert report.summary["slashes"] == []
    assert {finding["check"] for finding in report.verdicts} == {"REWARD"}
    assert {finding["state"] for finding in report.verdicts} == {"voided"}


@pytest.mark.timeout(300)
def test_an_interrupt_leaves_no_process_behind(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    words = [sys.executable, "-m", "cli", "devnet", "--model", "tiny", "--steps", "50", "--folder", str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (folder / "logs" / "worker-1.log").exists() and time.monotonic() < deadline:
        time.sleep(0.2)  # until real processes have come up
    assert (folder / "logs" / "worker-1.log").exists()
    assert process.stdout is not None
    hint = next(line for line in process.stdout if "from another shell" in line)
    looked = subprocess.run([sys.executable, "-m", "cli", *hint.split("intellect-node ")[1].split()], check=False)
    assert looked.returncode == 0

    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=150)

    assert process.returncode == 1
    assert output.splitlines()[-1] == "stopping the players, which takes up to 15 s"
    assert errors.strip().endswith("stopped")
    assert running(folder) == []


@pytest.mark.timeout(300)
def test_a_termination_signal_leaves_neither_process_nor_folder_behind(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "cli", "devnet", "--model", "tiny", "--steps", "50"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("intellect-node-*/logs/relay.log")) and time.monotonic() < deadline:
        time.sleep(0.2)  # until real processes have come up
    assert running(tmp_path) != []

    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)  # while it puts things away, or has done so
    process.wait(timeout=150)

    assert process.returncode in {1, -signal.SIGTERM}
    assert running(tmp_path) == []
    assert list(tmp_path.glob("intellect-node-*")) == []


@pytest.mark.slow
async def test_the_roles_of_a_network_meet_by_libp2p_and_reach_each_other(tmp_path: Path) -> None:
    report, _ = await played(tmp_path, None, steps=1, libp2p=True)

    logs = [path.read_text() for path in (tmp_path / "logs").iterdir()]
    met = [log for log in logs if "libp2p on" in log]
    assert report.failures == []
    assert len(met) == 6  # trainer, relay, two validators, two workers
    assert all(" reachable from outside" in log for log in met)
    assert not any("the libp2p process ended" in log for log in logs)
