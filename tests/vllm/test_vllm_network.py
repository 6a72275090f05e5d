"""A whole network whose workers generate with vLLM and whose validators check with transformers."""

from pathlib import Path

import pytest

from ledger.base import Ledger
from ledger.connection import open_ledger
from node.devnet.network import Show, play

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


async def connect(rpc_url: str, deployment: Path) -> Ledger:
    return await open_ledger([rpc_url], deployment, None, None)


async def test_work_of_one_engine_is_paid_by_validators_with_another_and_a_cheat_is_slashed(tmp_path: Path) -> None:
    show = Show(tmp_path, "tiny", "vllm", workers=1, steps=2, held_out_samples=0, seconds=800, libp2p=False)

    report = await play(show, connect, lambda _: None)

    assert report.failures == []
    assert report.summary["checkpoints"] == 3
    assert {slash["node"] for slash in report.summary["slashes"]} == {"cheater"}
    assert float(report.summary["rewards"]["worker-1"]) > 0 == float(report.summary["rewards"]["cheater"])
    log = (tmp_path / "logs" / "worker-1.log").read_text()
    assert "engine started engine=vllm" in log
    assert log.count("weights loaded version=") >= 2  # the second time in place
    assert log.count("engine started") == 1
