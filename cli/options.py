"""Options that many commands share, and what they amount to."""

import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

    from ledger.base import Address, Ledger
    from node.config import Home, Libp2p
    from node.engines.choice import EngineChoice

PASSWORD_VARIABLE = "INTELLECT_NODE_PASSWORD"
RPC_VARIABLE = "INTELLECT_NODE_RPC"
BASE_SEPOLIA = 84532
BASE_SEPOLIA_RPC = "https://sepolia.base.org"
MAX_TOKENS = 10**15  # whole tokens that an option takes: far more than there are, and far from 256 bits
REPLACE = "name another file, or replace it with --force"
MAX_PASSWORD_BYTES = 2**16

T = TypeVar("T")

Wallet = Annotated[str, typer.Option("--wallet", "-w", help="Keystore: a name in the wallet folder, or a path.")]
Rpc = Annotated[
    list[str] | None,
    typer.Option("--rpc", envvar=RPC_VARIABLE, help="RPC endpoint; repeat it for fallbacks."),
]
DeploymentFile = Annotated[
    Path | None, typer.Option("--deployment", envvar="INTELLECT_NODE_DEPLOYMENT", help="Contracts' addresses, as JSON.")
]
RunId = Annotated[int, typer.Option("--run", help="Number of the run.")]
HomeFolder = Annotated[
    Path | None, typer.Option("--home", help="Where this program keeps its files.", envvar="INTELLECT_NODE_HOME")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help=f"File with the password (else ${PASSWORD_VARIABLE}, else a prompt)."),
]
AllowPrivate = Annotated[
    bool, typer.Option("--allow-private", help="Let peers have private and loopback addresses (local networks only).")
]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads of the model on a CPU.", min=1, max=1024)]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", help="What runs the model: vllm, transformers, or auto for what suits the role and is here."
    ),
]
Gpus = Annotated[
    str | None,
    typer.Option("--gpus", help="Numbers of the GPUs to use, as 0,1; all if not given (transformers: the first)."),
]
TensorParallel = Annotated[
    int,
    typer.Option("--tensor-parallel", help="GPUs that share one model (vllm); an engine runs on each group.", min=1),
]
Peer = Annotated[
    list[str] | None,
    typer.Option(
        "--peer", help="A peer to begin with, as /ip4/HOST/tcp/PORT/p2p/ID, beside those on chain; repeat it."
    ),
]
P2pPort = Annotated[int, typer.Option("--p2p-port", help="Port of libp2p; 0 takes a free one.", min=0, max=65535)]
NoP2p = Annotated[bool, typer.Option("--no-p2p", help="No libp2p: only the chain's record and HTTP.")]
NoInbound = Annotated[
    bool, typer.Option("--no-inbound", help="Nobody can connect to this machine: announce no URL, only dial out.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def engine_of(name: str, threads: int | None, gpus: str | None, ranks: int) -> "EngineChoice":
    """What the options amount to. Raises: ConfigError: they are none, or cannot be had on this machine."""
    from node.engines.choice import EngineChoice
    from node.errors import ConfigError

    words = None if gpus is None else [word.strip() for word in gpus.split(",")]
    if words is not None and not all(word.isascii() and word.isdigit() for word in words):
        raise ConfigError(f"--gpus {gpus!r}: give numbers with commas between them, as 0,1")
    choice = EngineChoice(name, threads, None if words is None else tuple(map(int, words)), ranks)
    choice.require_possible()
    return choice


def libp2p_of(peers: list[str] | None, port: int, off: bool) -> "Libp2p":
    """What the options amount to. Raises: ConfigError: a peer's address is none, or libp2p is off and on in one."""
    from node.config import Libp2p
    from node.errors import ConfigError, Malformed
    from node.p2p.addresses import parse_multiaddr

    if off and (port or peers):
        raise ConfigError(f"{'--p2p-port' if port else '--peer'} is of no use with --no-p2p: leave out one of them")
    for peer in peers or ():
        try:
            parse_multiaddr(peer)
        except Malformed as error:
            raise ConfigError(f"--peer: {error}") from None
    return Libp2p(not off, port, tuple(peers or ()))


def home_of(folder: Path | None) -> "Home":
    from node.config import Home

    return Home(folder) if folder else Home.default()


def password(file: Path | None, confirm: bool = False) -> str:
    """From `file`, the environment, or a prompt, in this order. Raises: ConfigError: there is none."""
    from node.errors import ConfigError
    from node.files import read_text

    if file is not None:
        return _given(read_text(file, MAX_PASSWORD_BYTES, "password file").rstrip("\r\n"), f"password file {file}")
    if PASSWORD_VARIABLE in os.environ:
        return _given(os.environ[PASSWORD_VARIABLE], PASSWORD_VARIABLE)
    if not sys.stdin.isatty():
        raise ConfigError(
            f"no password: there is no terminal to ask at. Give --password-file, or set {PASSWORD_VARIABLE}"
        )
    answer: str = typer.prompt("Password of the wallet", hide_input=True, confirmation_prompt=confirm, err=True)
    return answer


def _given(secret: str, where: str) -> str:
    from node.errors import ConfigError

    if not secret:
        raise ConfigError(f"{where} is empty: write the password of the wallet into it")
    return secret


def unlock(wallet: str, home: "Home", password_file: Path | None) -> "LocalAccount":
    from ledger import keys

    path = keys.resolve(wallet, home.wallets)
    keys.require(path)
    return keys.unlock(path, password(password_file))


async def connect(
    rpc: list[str] | None, deployment: Path | None, home: "Home", account: "LocalAccount | None" = None
) -> "Ledger":
    """The chain, as `account` sees it: the deployment's file, or the one that ships for the chain.

    Raises: LedgerError. ConfigError: `account` would write to a home that it cannot.
    """
    from ledger.connection import open_ledger
    from ledger.deployment import for_chain
    from ledger.errors import NotDeployed
    from node.files import require_writable

    if not rpc and deployment is None and for_chain(BASE_SEPOLIA) is None:
        raise NotDeployed(
            "no contracts ship for Base Sepolia, the default chain: name a chain with --rpc URL and its contracts with "
            "--deployment FILE (`intellect-node deploy` makes them)"
        )
    if account is not None:
        require_writable(home.folder)
    return await open_ledger(rpc or [BASE_SEPOLIA_RPC], deployment, account, home.journal)


def asked(
    rpc: list[str] | None,
    deployment: Path | None,
    home: "Home",
    question: "Callable[[Ledger], Awaitable[T]]",
    account: "LocalAccount | None" = None,
) -> T:
    """What comes of `question`, put to the chain as `account` sees it.

    Raises: ConfigError: `account` cannot pay for what it is to send, or as `connect`. LedgerError.
    """
    from node.roles.gas import paying_gas

    async def work() -> T:
        ledger = await connect(rpc, deployment, home, account)
        try:
            if account is None:
                return await question(ledger)
            with paying_gas(ledger.account):
                return await question(ledger)
        finally:
            await ledger.close()

    return run_async(work())


def address(text: str) -> "Address":
    """The address that the user wrote. Raises: ConfigError."""
    from eth_utils.address import is_checksum_address, is_hex_address, to_checksum_address

    from ledger.base import Address
    from node.errors import ConfigError

    if not is_hex_address(text) or not (text == text.lower() or is_checksum_address(text)):
        raise ConfigError(
            f"{text!r} is no address: expected 0x and 40 hexadecimal digits, mixed case only as a checksum"
        )
    return Address(to_checksum_address(text))


def tokens(text: str) -> int:
    """Base units in an amount of tokens that the user wrote, exactly. Raises: typer.BadParameter."""
    from ledger.base import TOKEN_UNIT

    found = re.fullmatch(r"([0-9]{1,16})(?:\.([0-9]{1,18}))?", text, re.ASCII)
    amount = int(found[1] + (found[2] or "").ljust(len(str(TOKEN_UNIT)) - 1, "0")) if found else 0
    if not 0 < amount <= MAX_TOKENS * TOKEN_UNIT:
        raise typer.BadParameter(f"Input should be an amount of tokens above 0, such as 12.5, and is {text[:40]!r}")
    return amount


def run_async(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)
