"""Options of every role, and what they amount to: which chain, where it listens, whom it meets, what it shares."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import (
    AllowPrivate,
    DeploymentFile,
    EngineName,
    Gpus,
    HomeFolder,
    NoP2p,
    P2pPort,
    PasswordFile,
    Peer,
    Rpc,
    RunId,
    TensorParallel,
    Threads,
    Wallet,
    connect,
    engine_of,
    home_of,
    libp2p_of,
    password,
    unlock,
)
from cli.sharing import AlwaysServes, NoServe, Quota, UploadLimit, require_serving, sharing_of

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

    from ledger.base import Ledger
    from node.config import Home, Settings, Sharing
    from node.engines.choice import EngineChoice

Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)]
Advertise = Annotated[str | None, typer.Option("--advertise", help="URL under which other nodes reach this one.")]


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Who takes part, in what."""

    wallet: Wallet
    run: RunId


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The chain, the files here, and the network."""

    rpc: Rpc = None
    deployment: DeploymentFile = None
    home: HomeFolder = None
    password_file: PasswordFile = None
    host: Host = "0.0.0.0"
    port: Port = 0
    advertise: Advertise = None
    allow_private: AllowPrivate = False
    peer: Peer = None
    p2p_port: P2pPort = 0
    no_p2p: NoP2p = False

    @property
    def folder(self) -> "Home":
        return home_of(self.home)

    def secret(self, wallet: Path) -> str:
        """The password of `wallet`. Raises: KeystoreError: that is none; ConfigError: there is no password."""
        from ledger import keys

        keys.require(wallet)
        return password(self.password_file)

    def account(self, member: MemberOptions) -> "LocalAccount":
        return unlock(member.wallet, self.folder, self.password_file)

    def connector(self) -> "Callable[[LocalAccount], Awaitable[Ledger]]":
        return lambda account: connect(self.rpc, self.deployment, self.folder, account)

    def settings(
        self, member: MemberOptions, sharing: "Sharing", threads: int | None, inbound: bool = True
    ) -> "Settings":
        """Raises: ConfigError."""
        from node.config import Settings
        from node.errors import ConfigError

        if self.no_p2p and not inbound:
            raise ConfigError("--no-inbound with --no-p2p: nobody could ask this node for its files; leave out one")
        return Settings(
            self.folder, member.run, self.host, self.port, self.advertise, self.allow_private, threads, sharing=sharing,
            libp2p=libp2p_of(self.peer, self.p2p_port, self.no_p2p), inbound=inbound,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SharingOptions:
    """What goes to others, of a role that may serve no weights."""

    upload_limit: UploadLimit = None
    no_serve: NoServe = False
    quota: Quota = None

    def value(self) -> "Sharing":
        return sharing_of(self.upload_limit, self.no_serve, self.quota)


@dataclass(frozen=True, slots=True)
class AlwaysSharingOptions:
    """As `SharingOptions`, of a role that is there for others' weights."""

    upload_limit: UploadLimit = None
    no_serve: AlwaysServes = False
    quota: Quota = None

    def require(self, why: str) -> None:
        """Raises: ConfigError: it is to serve none."""
        require_serving(self.no_serve, why)

    def value(self) -> "Sharing":
        return sharing_of(self.upload_limit, self.no_serve, self.quota)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What runs the model, on what."""

    engine: EngineName = "auto"
    threads: Threads = None
    gpus: Gpus = None
    tensor_parallel: TensorParallel = 1

    def choice(self) -> "EngineChoice":
        """Raises: ConfigError."""
        return engine_of(self.engine, self.threads, self.gpus, self.tensor_parallel)
