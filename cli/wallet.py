"""`intellect-node wallet`: encrypted keystores."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.display import show
from cli.errors import reported
from cli.options import HomeFolder, Json, PasswordFile, home_of, password

app = typer.Typer(help="Make, import and show encrypted keystores.", no_args_is_help=True)

MAX_KEY_BYTES = 1024

Name = Annotated[str, typer.Argument(help="A name in the wallet folder, or a path.")]


@app.command()
@reported
def new(name: Name, home: HomeFolder = None, password_file: PasswordFile = None, json: Json = False) -> None:
    """Make a wallet with a new key."""
    from ledger import keys

    path = keys.resolve(name, home_of(home).wallets)
    keys.require_new(path)  # before anybody is asked for a secret
    address = keys.create(path, password(password_file, confirm=True))
    show({"address": address, "file": str(path)}, json)


@app.command(name="import")
@reported
def import_(
    name: Name,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="File with the private key in hex (else a prompt).")
    ] = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Make a wallet of a private key that you have. The key is never taken from the command line."""
    from ledger import keys
    from node.files import read_text

    path = keys.resolve(name, home_of(home).wallets)
    keys.require_new(path)
    key = read_text(key_file, MAX_KEY_BYTES, "key file") if key_file else _asked_key()
    address = keys.import_key(path, key, password(password_file, confirm=True))
    show({"address": address, "file": str(path)}, json)


def _asked_key() -> str:
    from node.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError("no private key: there is no terminal to ask at. Give --key-file")
    key: str = typer.prompt("Private key (hex)", hide_input=True, err=True)
    return key


@app.command(name="show")
@reported
def show_(name: Name, home: HomeFolder = None, json: Json = False) -> None:
    """Show a wallet's address, and its node key's where `join` made one."""
    from ledger import keys

    path = keys.resolve(name, home_of(home).wallets)
    node = keys.node_key_path(path)
    result = {"address": keys.address(path), "file": str(path)}
    if node.exists():
        result |= {"node": keys.address(node), "node_file": str(node)}
    show(result, json)
