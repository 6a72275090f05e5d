"""The libp2p process dies, hangs, is not there: the node notices, and goes on."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from node.errors import ConfigError, NotFound
from node.p2p.addresses import PeerAddress
from node.p2p.launching import launched
from node.p2p.limits import MAX_ASKS, MAX_REQUESTS_PER_PEER, MEMORY_BYTES
from node.p2p.link import Nobody
from node.p2p.listening import listening
from node.p2p.protocols import CONTENT
from node.p2p.sidecar import Sidecar
from node.printed import MAX_LOG_BYTES
from tests.p2p.parts import peer_of, secret, until
from tests.p2p.sidecars import LARGE, introduced, sidecars


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def environment_of(pid: int | None) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_what_the_libp2p_process_imports_is_none_of_what_serves_http() -> None:
    code = "import node.p2p.host, sys; print([name for name in ('aiohttp', 'node.transport') if name in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


@pytest.mark.slow
async def test_a_process_that_is_killed_again_and_again_is_begun_anew_and_dialled_again(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2, first_pause=0.1) as (one, other):
        for losses in (1, 2):
            await introduced(one, other)
            assert other.sidecar.pid is not None
            os.kill(other.sidecar.pid, signal.SIGKILL)
            await until(lambda count=losses: other.losses == count and len(one.gone) == count)
            with pytest.raises(NotFound):
                await one.sidecar.ask(other.peer, CONTENT, b"x")
            with pytest.raises(NotFound, match="libp2p is off"):
                await other.sidecar.ask(one.peer, CONTENT, b"x")
            await until(lambda: other.sidecar.address is not None, 60)

        await introduced(one, other)
        assert await one.sidecar.ask(other.peer, CONTENT, b"x") == b"x"
        assert other.sidecar.starts == 3


@pytest.mark.slow
async def test_a_process_that_hangs_is_killed(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 1, first_pause=0.1, hang_seconds=3.0) as (node,):
        pid = node.sidecar.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)

        with pytest.raises(NotFound):
            await node.sidecar.ask("nobody", CONTENT, b"x", seconds=0.2)
        await until(lambda: node.losses == 1, 30)
        await until(lambda: node.sidecar.address is not None, 60)

        assert node.sidecar.pid != pid and not is_running(pid)


async def test_the_process_knows_no_password_and_goes_with_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTELLECT_NODE_PASSWORD", "a secret")
    async with sidecars(tmp_path) as (node,):
        pid = node.sidecar.pid
        assert b"a secret" not in environment_of(pid)

        assert pid is not None
    await until(lambda: not is_running(pid))


def test_a_port_that_is_taken_is_said() -> None:
    with (
        listening("127.0.0.1", 0, True, secret(1)) as first,
        pytest.raises(ConfigError, match=r"`ss -ltnp` names who has it.*choose another --p2p-port"),
        listening("127.0.0.1", first.address.port, True, secret(2)),
    ):
        pass


@pytest.mark.slow
async def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    with listening("127.0.0.1", 0, True, b"no key") as socket:
        node = Sidecar(socket, tmp_path / "log")
        async with node.running(Nobody()):
            await until(lambda: node.starts == 2, 60)

        assert "Error" in (node.reason or "")


@pytest.mark.slow
def test_memory_beyond_the_limit_is_not_to_be_had() -> None:
    """The last bound, where all others were not enough: the process ends, and is begun anew."""
    more = f"from node.p2p.host import bound_memory; bound_memory(); bytes({MEMORY_BYTES + 2**28})"

    done = subprocess.run([sys.executable, "-c", more], capture_output=True, text=True, check=False)

    assert done.stderr.strip().endswith("MemoryError")


@pytest.mark.slow
async def test_questions_beyond_the_limit_fail_at_once(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2) as (one, other):
        await introduced(one, other)
        asked = [asyncio.create_task(one.sidecar.ask(other.peer, CONTENT, b"slow")) for _ in range(100)]

        answers = await asyncio.gather(*asked, return_exceptions=True)

        assert answers.count(b"slow") == MAX_REQUESTS_PER_PEER
        assert sum("at once" in str(answer) for answer in answers) == 100 - MAX_ASKS
        assert all(answer == b"slow" or isinstance(answer, NotFound) for answer in answers)
        assert await one.sidecar.ask(other.peer, CONTENT, b"x") == b"x"


async def test_why_nobody_is_dialled_is_said_in_plain_words(tmp_path: Path) -> None:
    async with sidecars(tmp_path) as (one,):
        with pytest.raises(NotFound) as refusal:
            await one.sidecar.dial(PeerAddress("127.0.0.1", 1, peer_of(1)))

    assert str(refusal.value).endswith("Connection refused")
    assert "Errno" not in str(refusal.value) and "RefusedError" not in str(refusal.value)


async def test_answers_that_are_ready_at_once_all_arrive(tmp_path: Path) -> None:
    """14 MiB for a process that has read none of it: of what was over eight nothing was sent, not even a refusal."""
    async with sidecars(tmp_path, 3) as (node, *askers):
        for asker in askers:
            await introduced(asker, node)
        asked = [
            asyncio.create_task(asker.sidecar.ask(node.peer, CONTENT, b"large together"))
            for asker in askers
            for _ in range(MAX_REQUESTS_PER_PEER - 1)  # the introduction's place may not be free yet
        ]
        await until(lambda: node.asked_for.count(b"large together") == len(asked))

        node.together.set()

        assert await asyncio.gather(*asked) == [LARGE] * len(asked)


async def test_a_process_that_does_not_go_is_killed_though_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def launch() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            async with launched(listener, tmp_path / "log") as child:
                pids.append(child.process.pid)
                os.kill(child.process.pid, signal.SIGSTOP)
                started.set()

    pids = list[int]()
    launching = asyncio.create_task(launch())
    await started.wait()
    await asyncio.sleep(0.1)  # it waits for the process now, for two seconds
    launching.cancel()
    await asyncio.wait([launching])

    assert not is_running(pids[0])


@pytest.mark.skipif(sys.platform != "linux", reason="only there can another process print as this one")
async def test_what_a_process_prints_takes_no_more_of_the_disk_than_it_may(tmp_path: Path) -> None:
    log = tmp_path / "libp2p.log"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with launched(listener, log) as child:
            output = Path(f"/proc/{child.process.pid}/fd/1")
            await asyncio.to_thread(output.write_bytes, b"a line\n" * (2 * MAX_LOG_BYTES // 7))

    assert child.printed.last_lines(1, 10)  # all of it has been read
    assert MAX_LOG_BYTES / 2 < sum(path.stat().st_size for path in (log, Path(f"{log}.1"))) <= MAX_LOG_BYTES


NODE = """
import asyncio, sys
from pathlib import Path
from tests.p2p.sidecars import sidecars

async def main() -> None:
    async with sidecars(Path(sys.argv[1])) as (node,):
        print(node.sidecar.pid, node.address.port, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a stopped process on Linux alone")
def test_a_stopped_process_ends_with_a_killed_node_and_leaves_its_port(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", NODE, str(tmp_path)], stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        pid, port = map(int, node.stdout.readline().split())
        os.kill(pid, signal.SIGSTOP)
        node.kill()

    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:  # until whoever has the port is gone
        with suppress(ConfigError), listening("127.0.0.1", port, True, secret(1)) as taken:
            assert taken.address.port == port
            return
        time.sleep(0.05)
    pytest.fail("the port stays taken")
