"""libp2p processes for tests, each with a listener that notes what it hears."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from node.errors import NotFound
from node.p2p.addresses import PeerAddress, peer_id
from node.p2p.keys import public_key_of
from node.p2p.listening import listening
from node.p2p.protocols import IDENTITY
from node.p2p.sidecar import Sidecar
from tests.p2p.parts import secret, until

START_SECONDS = 60.0
LARGE = bytes(range(256)) * 4096  # a MiB


@dataclass
class Ear:
    """Admits whoever asks for its identity, and answers by what was asked."""

    sidecar: Sidecar = field(init=False)
    here: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    asked_for: list[bytes] = field(default_factory=list)
    losses: int = 0
    given_up: int = 0  # of what it was asked, before it had answered
    together: asyncio.Event = field(default_factory=asyncio.Event)

    def ready(self) -> None:
        return None

    def opened(self, peer: str, dialled: bool) -> None:
        self.here.append(peer)

    def closed(self, peer: str) -> None:
        self.gone.append(peer)

    def lost(self) -> None:
        self.losses += 1

    async def asked(self, peer: str, protocol: str, body: bytes) -> bytes:
        if protocol == IDENTITY:
            self.sidecar.admit(peer, f"the node of {peer}")
            return b"welcome"
        self.asked_for.append(body)
        if body == b"never":
            try:
                await asyncio.sleep(3600)
            finally:
                self.given_up += 1
        if body == b"slow":
            await asyncio.sleep(1)
        if body == b"no":
            raise NotFound("no")
        if body == b"large together":
            await self.together.wait()
        return LARGE if body.startswith(b"large") else body

    @property
    def address(self) -> PeerAddress:
        assert self.sidecar.address is not None
        return self.sidecar.address

    @property
    def peer(self) -> str:
        return peer_id(public_key_of(self.sidecar.listening.secret))

    def memory_mib(self) -> float:
        fields = Path(f"/proc/{self.sidecar.pid}/statm").read_text().split()
        return int(fields[1]) * 4096 / 2**20


@asynccontextmanager
async def sidecars(
    folder: Path, count: int = 1, *, private: bool = True, **options: object
) -> AsyncIterator[list[Ear]]:
    """So many libp2p processes, listening on loopback."""
    async with AsyncExitStack() as stack:
        ears = [Ear() for _ in range(count)]
        for number, ear in enumerate(ears):
            socket = stack.enter_context(listening("127.0.0.1", 0, private, secret(40 + number)))
            ear.sidecar = Sidecar(socket, folder / f"{number}.log", **options)  # type: ignore[arg-type]
            await stack.enter_async_context(ear.sidecar.running(ear))
        await until(lambda: all(ear.sidecar.address for ear in ears), START_SECONDS)
        yield ears


async def introduced(one: Ear, other: Ear, way: PeerAddress | None = None) -> None:
    """Connects two sidecars, by another `way` where one is given, and has each admit the other."""
    await one.sidecar.dial(way or other.address)
    assert await one.sidecar.ask(other.peer, IDENTITY, b"me") == b"welcome"
    one.sidecar.admit(other.peer, "a node")


@asynccontextmanager
async def hostile(conduct: str, at: Ear, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.p2p.hostile", conduct, at.address.host, str(at.address.port), at.peer, *words,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process, seconds: float = 60.0) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(seconds):
        return (await process.stdout.readline()).decode().strip()
