"""A private chain on this machine: starts anvil, hands out its funded keys, and ends it with whoever started it."""

import asyncio
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final, Self

from ledger.base import Address
from ledger.errors import LedgerError

if TYPE_CHECKING:  # a second of imports that reading the chain can do without
    from eth_account.signers.local import LocalAccount

CHAIN_ID: Final = 31337  # anvil's own
START_SECONDS: Final = 60.0  # it takes under one on a quiet machine
STOP_SECONDS: Final = 30.0  # it may have a state file to write
LISTENING: Final = "Listening on "
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h

ADVICE: Final = (
    "anvil was not found. Install it with `npm install` in the repository (it is in package.json), put Foundry's anvil "
    "on PATH, or name it in the environment variable ANVIL."
)


class DevnetError(LedgerError):
    """anvil cannot be found or started; the message says what to do."""


class Anvil:
    """An anvil process, up inside `async with`. Several can run beside each other: each has a port of its own."""

    def __init__(
        self, block_time: int | None = 1, chain_id: int = CHAIN_ID, port: int = 0, state: Path | None = None
    ) -> None:
        """
        Args:
            block_time: seconds between blocks; None mines one per transaction and none otherwise.
            port: 0 takes a free one.
            state: a file that the chain is read from at the start, if it exists, and written to at the end.
        """
        self._block_time = block_time
        self._chain_id = chain_id
        self._port = port
        self._state = state
        self._process: subprocess.Popen[str] | None = None
        self.rpc_url = ""
        self.accounts: tuple[LocalAccount, ...] = ()

    async def __aenter__(self) -> Self:
        """Raises: DevnetError."""
        binary = find_anvil()
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "anvil.json"
            # started in this thread, since the death of the thread that forked it ends it too
            self._process = _start([str(binary), *self._arguments(), "--config-out", str(config)])
            async with AsyncExitStack() as started:
                started.push_async_callback(self.stop)
                self.rpc_url = "http://" + await asyncio.to_thread(_listening, self._process)
                keys = json.loads(config.read_text())["private_keys"]
                await self._request("eth_chainId", [])
                started.pop_all()
        from eth_account import Account  # as above

        self.accounts = tuple(Account.from_key(key) for key in keys)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Ends the process, which writes its state first."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_end, process)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise DevnetError("anvil is not running")
        return self._process.pid

    async def fund(self, who: Address, wei: int) -> None:
        """Sets `who`'s native balance."""
        await self._request("anvil_setBalance", [who, hex(wei)])

    async def mine(self, blocks: int = 1) -> None:
        await self._request("anvil_mine", [hex(blocks)])

    async def advance(self, seconds: int) -> None:
        """Moves the chain's clock forward and mines a block there."""
        await self._request("evm_increaseTime", [seconds])
        await self._request("evm_mine", [])

    async def reorg(self, depth: int) -> None:
        """Replaces the last `depth` blocks by empty ones; their transactions are gone from the pool too."""
        await self._request("anvil_reorg", [depth, []])

    async def _request(self, method: str, parameters: list[object]) -> None:
        from web3.types import RPCEndpoint

        from ledger.endpoints import Endpoints  # web3, a second of imports that listing commands can do without

        endpoints = Endpoints([self.rpc_url], self._chain_id)
        try:
            await endpoints.ask(lambda w3: w3.provider.make_request(RPCEndpoint(method), parameters))
        finally:
            await endpoints.close()

    def _arguments(self) -> list[str]:
        arguments = ["--port", str(self._port), "--chain-id", str(self._chain_id)]
        if self._block_time is not None:
            arguments += ["--block-time", str(self._block_time)]
        if self._state is not None:
            arguments += ["--state", str(self._state)]
        return arguments


def find_anvil() -> Path:
    """The anvil binary: $ANVIL, else `node_modules` upward from here and from this package, else PATH.

    Raises:
        DevnetError: with how to get it.
    """
    named = os.environ.get("ANVIL")
    if named:
        if not Path(named).is_file():
            raise DevnetError(f"ANVIL names {named}, which is no file")
        return Path(named)
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if binary := _installed_by_npm(folder / "node_modules"):
                return binary
    if on_path := shutil.which("anvil"):
        return Path(on_path)
    raise DevnetError(ADVICE)


def _installed_by_npm(modules: Path) -> Path | None:
    """The native binary rather than npm's script around it, which would outlive nothing and be killed alone."""
    native = sorted(modules.glob("@foundry-rs/anvil-*/bin/anvil*"))
    if native:
        return native[0]
    script = modules / ".bin" / "anvil"
    return script if script.exists() else None


def _start(command: list[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches its owner only, who ends it in order
            preexec_fn=_dies_with_parent(),
        )
    except OSError as problem:
        raise DevnetError(
            f"{command[0]} cannot be started: {problem.strerror}: make it executable, or name another in the "
            "environment variable ANVIL"
        ) from problem


def _dies_with_parent() -> Callable[[], None] | None:
    """For the child, between fork and exec: a killed parent takes it along. Linux only."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork, where no lock can be held

    def request() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return request


def _listening(process: subprocess.Popen[str]) -> str:
    """host:port, once anvil says so; its output is read to the end by a thread, so that it never blocks on a pipe."""
    heard: Queue[str | None] = Queue()
    output: list[str] = []
    assert process.stdout is not None  # it was started with a pipe
    threading.Thread(target=_listen, args=(process.stdout, heard, output), daemon=True, name="anvil output").start()
    try:
        where = heard.get(timeout=START_SECONDS)
    except Empty:
        raise DevnetError(f"anvil did not start within {START_SECONDS:.0f} s") from None
    if where is None:
        raise DevnetError("anvil did not start: " + " ".join(output)[-300:].strip())
    return where


def _listen(stream: IO[str], heard: "Queue[str | None]", output: list[str]) -> None:
    listening = False
    with stream:
        for line in stream:
            if listening:
                continue
            output.append(line)
            if line.startswith(LISTENING):
                listening = True
                heard.put(line.removeprefix(LISTENING).strip())
    heard.put(None)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
