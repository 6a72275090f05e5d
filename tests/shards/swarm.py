"""A swarm of real processes that receive one checkpoint behind a slow origin, some of them liars, killed at random."""

import asyncio
import json
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ledger.base import Digest
from node.bans import Bans
from node.shards.manifest import build
from tests.shards.checkpoints import contents

PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "weights_transfer"
DEAD_SECONDS = (0.0, 0.5)  # how long the dead stay so, between


@dataclass(slots=True)
class Node:
    """One process after another with the same folder and port."""

    folder: Path
    options: tuple[str, ...] = ()
    process: Process | None = None
    port: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)  # the one alive has the checkpoint

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def begin(self) -> Process:
        """The process when it serves; it may have been killed before, and was begun again then."""
        hello = b""
        while not hello:
            self.process = await _begin("peer.py", str(self.folder), str(self.port), *self.options)
            hello = await _line(self.process)
        self.port = _port(hello)
        assert self.process is not None
        return self.process

    def kill(self) -> bool:
        """Whether there was one to kill."""
        if self.process is None or self.process.returncode is not None:
            return False
        self.done.clear()
        self.process.send_signal(signal.SIGKILL)
        return True

    def came(self) -> Counter[str]:
        """How often each chunk came, right, in all lives."""
        path = self.folder / "came"
        return Counter(path.read_text().split() if path.exists() else ())

    def lied_to(self) -> bool:
        """Whether a wrong chunk came, in any life."""
        return (self.folder / "wrong").exists()

    def banned(self) -> set[str]:
        return set(Bans(self.folder / "store" / "banned").reasons)

    def has(self, source: Path, root: Digest) -> bool:
        return contents(self.folder / "store" / "checkpoints" / root.hex()) == contents(source)


@dataclass(slots=True)
class Swarm:
    """Honest nodes first; `kills` are those that met somebody alive."""

    source: Path
    nodes: list[Node]
    honest: list[Node]
    root: Digest
    rng: random.Random
    line: str = ""
    kills: int = 0
    over: bool = False

    @property
    def liars(self) -> list[Node]:
        return [node for node in self.nodes if node not in self.honest]

    def fetched_twice(self) -> float:
        """Chunks that came to honest nodes again, as a share of all that they needed."""
        came = [node.came() for node in self.honest]
        return sum(each.total() - len(each) for each in came) / sum(len(each) for each in came)


async def churn(
    folder: Path,
    source: Path,
    honest: int,
    liars: int,
    kills: int,
    pause_seconds: float,
    megabytes_s: float,
    seed: int,
    lies: float = 0.1,
) -> Swarm:
    """The swarm after so many kills, and after every honest node has ended its download. Its processes are gone then.
    `lies` is the share of wrong chunks of what liars send.

    Raises: TimeoutError, in the caller's time limit.
    """
    nodes = [Node(folder / f"honest-{number}", ("--note",)) for number in range(honest)]
    lying = [Node(folder / f"liar-{number}", ("--lies", str(lies))) for number in range(liars)]
    swarm = Swarm(source, [*nodes, *lying], nodes, build(source).root, random.Random(seed))
    origin = Node(folder / "origin")
    helpers = [await origin.begin()]
    try:
        await _told(helpers[0], {"add": str(source)})
        helpers.append(await _begin("line.py", str(origin.port), str(megabytes_s)))
        swarm.line = f"http://127.0.0.1:{_port(await _line(helpers[1]))}"
        await asyncio.gather(*(node.begin() for node in swarm.nodes))
        async with asyncio.TaskGroup() as lives:
            living = [lives.create_task(_live(swarm, node)) for node in swarm.nodes]
            await _kill(swarm, kills, pause_seconds)
            for node in swarm.honest:
                await node.done.wait()
            swarm.over = True
            for each in living:
                each.cancel()
    finally:
        for each in (*helpers, *(node.process for node in swarm.nodes)):
            if each is not None and each.returncode is None:
                each.kill()
                await each.wait()
    return swarm


async def _live(swarm: Swarm, node: Node) -> None:
    """One life after another: fetches, then serves until it is killed."""
    while not swarm.over:
        process = node.process
        assert process is not None
        others = [other.url for other in swarm.nodes if other is not node]
        _tell(process, {"fetch": swarm.root.hex(), "sources": [swarm.line, *others]})
        if await _line(process):
            node.done.set()
        await process.wait()
        await asyncio.sleep(swarm.rng.uniform(*DEAD_SECONDS))
        await node.begin()


async def _kill(swarm: Swarm, kills: int, pause_seconds: float) -> None:
    while swarm.kills < kills:
        await asyncio.sleep(swarm.rng.uniform(0, 2 * pause_seconds))
        swarm.kills += swarm.rng.choice(swarm.nodes).kill()


async def _begin(program: str, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAMS / program), *arguments, stdin=PIPE, stdout=PIPE
    )


def _tell(process: Process, said: dict[str, object]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(said).encode() + b"\n")


async def _told(process: Process, said: dict[str, object]) -> bytes:
    _tell(process, said)
    return await _line(process)


async def _line(process: Process) -> bytes:
    """Empty: it has ended."""
    assert process.stdout is not None
    return await process.stdout.readline()


def _port(hello: bytes) -> int:
    return int(json.loads(hello)["url"].rpartition(":")[2])
