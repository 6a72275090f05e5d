"""What of the line and the disk goes to others: options of the roles, and what they amount to."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from node.config import Sharing

POWERS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
LEAST_UPLOAD = 200_000  # bytes a second: as `node.transport.uplink` always sends two files at once, each that fast
LEAST_QUOTA = 10**6
MOST_BYTES = 10**18

UploadLimit = Annotated[
    Any,
    typer.Option(
        "--upload-limit",
        help="Most that is sent a second, of weights and files: 50MB (bytes), 400Mbit; no limit if not given.",
        parser=lambda text: byte_rate(text),
        metavar="RATE",
    ),
]
NoServe = Annotated[bool, typer.Option("--no-serve", help="Serve no weights to others; rollout files still are.")]
AlwaysServes = Annotated[bool, typer.Option("--no-serve", hidden=True)]  # so that it is refused in words
Quota = Annotated[
    Any,
    typer.Option(
        "--quota",
        help="Most of the disk that weights take, as 500GB: the oldest versions go; as the run needs if not given.",
        parser=lambda text: byte_size(text),
        metavar="SIZE",
    ),
]


def sharing_of(upload_limit: float | None, no_serve: bool, quota: int | None) -> "Sharing":
    from node.config import Sharing

    return Sharing(upload_limit, not no_serve, quota)


def require_serving(no_serve: bool, what: str) -> None:
    """Raises: ConfigError."""
    from node.errors import ConfigError

    if no_serve:
        raise ConfigError(f"{what}: leave out --no-serve; --upload-limit keeps what it sends within bounds")


def byte_rate(text: str) -> float:
    """Bytes a second in what the user wrote: 50MB, 400Mbit, and the like. Raises: typer.BadParameter."""
    value, unit = _quantity(text)
    rate = value / (8 if unit == "bit" else 1)
    if not LEAST_UPLOAD <= rate <= MOST_BYTES:
        raise typer.BadParameter(
            f"Input should be a rate from 200kB to 1000000TB a second, such as 50MB or 400Mbit, and is {text[:40]!r}"
        )
    return rate


def byte_size(text: str) -> int:
    """Bytes in what the user wrote: 500GB, and the like. Raises: typer.BadParameter."""
    value, unit = _quantity(text)
    if unit != "B" or not LEAST_QUOTA <= value <= MOST_BYTES:
        raise typer.BadParameter(f"Input should be a size from 1MB to 1000000TB, such as 500GB, and is {text[:40]!r}")
    return int(value)


def _quantity(text: str) -> tuple[float, str]:
    """A number and B or bit; (0, "") where it is none. Powers of ten, as lines and disks are sold."""
    found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([kMGT]?)(B|bit)(?:/s)?", text, re.ASCII)
    return (float(found[1]) * POWERS[found[2]], found[3]) if found else (0.0, "")
