"""What web3 and the ABI codec raise, translated here and nowhere else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eth_abi.exceptions import DecodingError, EncodingError
from web3.exceptions import MismatchedABI, Web3Exception

from ledger.errors import reverted

MAX_MESSAGE: Final = 300  # characters kept of an endpoint's own words


class BadAnswer(Exception):
    """An endpoint's answer is not what the call returns; never leaves this package."""


@contextmanager
def reading() -> Iterator[None]:
    """Around what reads an endpoint's answers. Raises: BadAnswer.

    Besides its own errors web3 lets through what its formatters and the codec run into.
    """
    try:
        yield
    except (Web3Exception, DecodingError, ValueError, TypeError, KeyError, OverflowError) as problem:
        raise BadAnswer(f"{type(problem).__name__}: {printable(str(problem))}") from problem


@contextmanager
def encoding(function: str) -> Iterator[None]:
    """Around what encodes a call of `function`. Raises: Reverted, as the contract would, where an argument is out of
    range."""
    try:
        yield
    except (MismatchedABI, EncodingError) as problem:
        raise reverted("OutOfRange", {"function": function}) from problem


def printable(value: object) -> str:
    """An endpoint's own words, cut and printable."""
    return "".join(c if c.isprintable() else " " for c in value[:MAX_MESSAGE]) if isinstance(value, str) else ""
