"""Exit codes, and how an error reaches the user: what happened, what it means, what to do."""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

OK, FAILED, USAGE, BUG, TRY_AGAIN = 0, 1, 2, 70, 75  # sysexits.h: EX_SOFTWARE, EX_TEMPFAIL

P = ParamSpec("P")


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """`command`, its known errors printed as one line and turned into the exit code that fits."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from ledger.errors import LedgerError
        from node.errors import NodeError
        from node.log import complain, event

        try:
            command(*args, **kwargs)
        except (NodeError, LedgerError) as error:
            complain(error)
            raise typer.Exit(exit_code(error)) from None
        except (KeyboardInterrupt, asyncio.CancelledError):
            event("stopped")
            raise typer.Exit(FAILED) from None

    return run


def exit_code(error: Exception) -> int:
    """2 where the user must change something, 75 where trying again can help, else 1."""
    from ledger.devnet import DevnetError
    from ledger.errors import (
        Contradicted,
        InvalidEndpoint,
        KeystoreError,
        NotDeployed,
        Reorganised,
        Unconfirmed,
        UnknownRun,
        Unreachable,
        WrongChain,
    )
    from ledger.portable import NotExported
    from node.errors import ConfigError, NotFound, SpecMismatch

    users = (
        ConfigError,
        SpecMismatch,
        KeystoreError,
        InvalidEndpoint,
        WrongChain,
        NotDeployed,
        NotExported,
        UnknownRun,
        DevnetError,
    )
    if isinstance(error, users):
        return USAGE
    if isinstance(error, (Unreachable, Unconfirmed, Reorganised, Contradicted, NotFound)):
        return TRY_AGAIN
    return FAILED
