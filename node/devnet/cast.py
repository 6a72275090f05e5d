"""The roles of a local network as processes, each with a home folder, a wallet and a log of its own."""

import asyncio
import ctypes
import os
import secrets
import signal
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ledger import keys
from ledger.base import Address
from node.errors import NodeError

STOP_SECONDS = 15.0  # for a process to end by itself before it is killed
KDF_ITERATIONS = 2**14  # wallets of a local network hold nothing: unlocking them should be quick
PR_SET_PDEATHSIG = 1  # prctl(2)
TAIL_LINES = 15
PROGRAM = ("-m", "cli")  # what Python runs


class RoleFailed(NodeError):
    """A process of the local network ended as it should not have."""


@dataclass(slots=True)
class Player:
    """One key with its home folder; `process` while it plays a role."""

    name: str
    home: Path
    address: Address
    log: Path
    process: asyncio.subprocess.Process | None = None

    @property
    def password_file(self) -> Path:
        return self.home / "password"

    @property
    def node(self) -> Address:
        """The node key's address, where `join` made one."""
        path = keys.node_key_path(self.home / "wallets" / f"{self.name}.json")
        return keys.address(path) if path.exists() else self.address

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-TAIL_LINES:])


@dataclass(slots=True)
class Cast:
    """Everybody in one local network. `common` are the options that name chain and contracts."""

    folder: Path
    rpc_url: str
    players: dict[str, Player] = field(default_factory=dict)

    @property
    def deployment(self) -> Path:
        return self.folder / "deployment.json"

    def player(self, name: str) -> Player:
        """A new player with a new wallet."""
        home = self.folder / "homes" / name
        secret = secrets.token_urlsafe(16)
        address = keys.create(home / "wallets" / f"{name}.json", secret, KDF_ITERATIONS)
        password_file = home / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(secret)
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self.players[name] = Player(name, home, address, self.folder / "logs" / f"{name}.log")
        return self.players[name]

    def _command(
        self,
        player: Player,
        arguments: tuple[str, ...],
        deployed: bool = True,
        signing: bool = True,
        program: tuple[str, ...] = PROGRAM,
    ) -> list[str]:
        words = [sys.executable, *program, *arguments, "--home", str(player.home), "--rpc", self.rpc_url]
        if deployed:
            words += ["--deployment", str(self.deployment)]
        if signing:
            words += ["--wallet", player.name, "--password-file", str(player.password_file)]
        return words

    async def call(self, player: Player, *arguments: str, deployed: bool = True, signing: bool = True) -> str:
        """Runs a command to its end; its standard output. Raises: RoleFailed."""
        words = self._command(player, arguments, deployed, signing)
        with player.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *words, stdout=asyncio.subprocess.PIPE, stderr=log, env=_environment(), preexec_fn=_die_with_parent
            )
            try:
                output, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
        if process.returncode:
            raise RoleFailed(f"`{' '.join(arguments[:2])}` ended with {process.returncode}:\n{player.tail()}")
        return output.decode()

    async def start(
        self, player: Player, *arguments: str, niceness: int = 0, program: tuple[str, ...] = PROGRAM
    ) -> None:
        """Starts a role that goes on; its log goes to the player's file. The nicer, the less it takes from others."""
        words = self._command(player, arguments, program=program)
        with player.log.open("ab") as log:
            player.process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
                start_new_session=True, preexec_fn=partial(_begin, niceness),
            )  # fmt: skip

    async def stop(self) -> None:
        """Ends what still runs: asked first, killed after a while."""
        running = [p.process for p in self.players.values() if p.process and p.process.returncode is None]
        for process in running:
            process.terminate()
        waits = [asyncio.create_task(process.wait()) for process in running]
        if waits:
            await asyncio.wait(waits, timeout=STOP_SECONDS)
        for process in running:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}  # before torch comes, and sets its own from --threads


def _begin(niceness: int) -> None:
    os.nice(niceness)
    _die_with_parent()


def _die_with_parent() -> None:
    """Has the kernel end this process when the devnet itself is killed (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
