"""Where a node keeps its files, and what its user set. Folders are made when something is written into them."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from ledger.base import MAX_URL_BYTES
from node.errors import ConfigError

APP = "intellect-node"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder that holds everything of one user: wallets, and a folder per role, chain, run and key."""

    folder: Path

    @classmethod
    def default(cls) -> "Home":
        """$INTELLECT_NODE_HOME, else the platform's data folder."""
        named = os.environ.get("INTELLECT_NODE_HOME")
        return cls(Path(named) if named else Path(platformdirs.user_data_dir(APP)))

    @property
    def wallets(self) -> Path:
        return self.folder / "wallets"

    @property
    def engine_log(self) -> Path:
        """As `StateFolder.engine_log`, of commands that are no role."""
        return self.folder / "engine"

    def state(self, chain_id: int, coordinator: str, run: int, account: str) -> "StateFolder":
        """Of one key in one run. Another deployment on the same chain id gets another folder."""
        return StateFolder(self.folder / "runs" / f"{chain_id}-{coordinator[2:10].lower()}-{run}" / account.lower())

    def states(self, chain_id: int, coordinator: str, account: str) -> list["StateFolder"]:
        """Of one key in every run of a deployment that it had a part in here."""
        folders = self.folder.glob(f"runs/{chain_id}-{coordinator[2:10].lower()}-*/{account.lower()}")
        return [StateFolder(folder) for folder in sorted(folders)]

    def journal(self, chain_id: int, coordinator: str, account: str) -> Path:
        """What a key signed on one deployment, over all runs."""
        return self.folder / "journals" / f"{chain_id}-{coordinator[2:10].lower()}-{account.lower()}.sqlite"


@dataclass(frozen=True, slots=True)
class StateFolder:
    """What one role keeps for one run."""

    folder: Path

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def rollouts(self) -> Path:
        return self.folder / "rollouts"

    @property
    def incoming(self) -> Path:
        """Rollout files that are being received, a folder each."""
        return self.folder / "incoming"

    @property
    def cases(self) -> Path:
        return self.folder / "cases"

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence"

    @property
    def training(self) -> Path:
        return self.folder / "training"

    @property
    def engine_log(self) -> Path:
        """What an engine's own processes print goes beside it, `.0.log` and so on."""
        return self.folder / "engine"

    @property
    def peer_key(self) -> Path:
        """The libp2p key, an Ed25519 secret."""
        return self.folder / "peer.key"

    @property
    def peer_log(self) -> Path:
        """What the libp2p process prints."""
        return self.folder / "libp2p.log"

    @property
    def peers(self) -> Path:
        """How the role stands among its peers, for `status`."""
        return self.folder / "peers.json"

    @property
    def sharing(self) -> Path:
        """What a role that runs gives of its line and disk, for `status`."""
        return self.folder / "sharing.json"

    @property
    def lock(self) -> Path:
        return self.folder / "lock"


KEPT_VERSIONS = 5  # of the weights, the newest; version 0 stays too


@dataclass(frozen=True, slots=True)
class Sharing:
    """What of this machine's line and disk goes to others. Without limits, as much as they ask for."""

    upload_bytes_per_second: float | None = None  # of all weights and files that this process sends
    weights: bool = True  # are served; rollout files are handed out in any case
    quota_bytes: int | None = None  # of the disk, for weights


@dataclass(frozen=True, slots=True)
class Libp2p:
    """Whether and where a role meets others by libp2p; `peers` are multiaddresses to begin with, beside the chain's."""

    on: bool = False
    port: int = 0  # 0: any free one
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """What every role is told: where to listen, what to announce, how much of the machine to take.

    Raises: ConfigError: peers could not reach this node.
    """

    home: Home
    run: int
    host: str = "0.0.0.0"
    port: int = 0  # 0: any free one
    advertise: str | None = None  # the URL that peers reach this node by; default http://host:port
    allow_private: bool = False  # let peers have loopback and private addresses: local networks only
    threads: int | None = None  # of torch; None: its own choice
    poll_seconds: float = 0.5  # between two looks at the chain
    keep_versions: int = KEPT_VERSIONS
    sharing: Sharing = Sharing()
    libp2p: Libp2p = Libp2p()
    inbound: bool = True  # whether others can connect to this machine at all

    def __post_init__(self) -> None:
        if self.inbound and self.advertise is None and self.host in {"", "0.0.0.0", "::"}:
            raise ConfigError(
                f"no peer can reach {self.host or 'any address'}: say under which URL this machine is reachable with "
                "--advertise http://NAME-OR-ADDRESS:PORT (and --port PORT), bind one address with --host, or, where "
                "nobody can connect to this machine, `join` with --no-inbound"
            )
        if self.advertise is not None and not self.inbound:
            raise ConfigError(
                "--advertise with --no-inbound: say either where others reach this machine, or that none do"
            )
        if self.port and not self.inbound:
            raise ConfigError("--port with --no-inbound: nobody is told of that port; leave out one of them")
        if self.port and self.port == self.libp2p.port:
            raise ConfigError(
                f"--port and --p2p-port both name port {self.port}: give HTTP and libp2p a port each, or leave out one"
            )
        if self.advertise is not None:
            _require_url(self.advertise)

    def announced(self, port: int) -> str:
        """The URL that peers are told; empty where nobody can connect."""
        if not self.inbound:
            return ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (self.advertise or f"http://{host}:{port}").rstrip("/")


def _require_url(url: str) -> None:
    """Raises: ConfigError: peers would not ask this URL, or the contract would not keep it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and url.isprintable()
    except ValueError:  # a port that is none, or brackets that do not close
        usable = None
    if not usable or " " in url or parts.query or parts.fragment or "@" in parts.netloc:
        raise ConfigError(
            f"--advertise {url[:MAX_URL_BYTES]!r} is no URL that peers can ask: expected http://NAME-OR-ADDRESS:PORT, "
            "without user, query or spaces"
        )
    if len(url.encode()) > MAX_URL_BYTES:
        raise ConfigError(f"--advertise is longer than {MAX_URL_BYTES} bytes: the contract keeps no more")
