"""One line per event that a person would ask about, for people or, with `json_lines`, for machines.

Both have the same fields; only people get units. Names of fields that recur: commitment, version, slot, node, check,
seconds, bytes, tokens; a rate ends in `_s`, an amount of stake or pay is in base units, `gas` in wei, `due` is a
block's time.
"""

import json
import logging
import math
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from ledger.base import amount_text

MAX_CHARACTERS = 500  # of one field
MAX_ITEMS = 64  # of a field that is a list
EXACT = 2**53  # larger integers lose digits in many readers of JSON: they become text

LOGGER = logging.getLogger("intellect-node")
LIBRARIES = ("ledger", "node")  # packages of this program that log by their own module's name

Plain = str | int | float | list[Any] | None


def event(what: str, /, **fields: object) -> None:
    """Logs that `what` happened. Bytes are shown in hex; nothing secret is ever a field."""
    LOGGER.info(what, extra={"fields": _fields(fields)})


def warn(what: str, /, **fields: object) -> None:
    """Logs something that a person may have to act on."""
    LOGGER.warning(what, extra={"fields": _fields(fields)})


def complain(error: Exception, why: str | None = None, *, bug: bool = False) -> None:
    """Says why a command ends, in `error`'s words where there are no better ones, and of a bug where it happened: among
    JSON lines as one of them, else as it is."""
    if any(isinstance(handler.formatter, _JsonLines) for handler in LOGGER.handlers):
        fields = {"reason": _plain(why or error), "kind": type(error).__name__}
        LOGGER.error("error", exc_info=error if bug else None, extra={"fields": fields})
        return
    if bug:
        traceback.print_exception(error)
    print(f"error: {why or error}", file=sys.stderr)


def configure(role: str | None, *, json_lines: bool) -> None:
    """Sends events to standard error, each with its time and `role`; without a role, a command's, as they are.

    Among JSON lines even what libraries and Python itself warn of is one.
    """
    handler = _Console(sys.stderr, lively=not json_lines)
    handler.setFormatter(_JsonLines(role or "") if json_lines else _Lines(role) if role else _Bare())
    for logger in (LOGGER, *map(logging.getLogger, LIBRARIES)):
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
    if json_lines:
        logging.getLogger().handlers = [handler]
        logging.captureWarnings(True)


def live(key: object, text: str | None) -> bool:
    """Shows `text` in the terminal's last line, below all events, until the next one of `key`; None takes it away.

    Whether there is a terminal to show it on.
    """
    consoles = [handler for handler in LOGGER.handlers if isinstance(handler, _Console) and handler.lively]
    for console in consoles:
        console.show(key, text)
    return bool(consoles)


def wei_text(wei: int) -> str:
    """An amount of the chain's own coin, for people."""
    return f"{wei / 10**18:,.4f} ETH"


def bytes_text(count: float) -> str:
    """A size, for people: decimal units, as disks and networks are sold."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def seconds_text(seconds: float) -> str:
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def time_text(seconds: float) -> str:
    """A block's time as this machine's clock has it."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%H:%M:%S")


UNITS: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(("amount", "total_amount", "pay", "bond"), lambda value: amount_text(int(value))),
    **dict.fromkeys(("bytes", "total_bytes"), bytes_text),
    "bytes_s": lambda value: bytes_text(value) + "/s",
    "tokens_s": lambda value: f"{value:,.0f}",
    **dict.fromkeys(("seconds", "seconds_left", "stalled_seconds"), seconds_text),
    "gas": lambda value: wei_text(int(value)),
    "due": time_text,
}


def _fields(fields: Mapping[str, object]) -> dict[str, Plain]:
    return {key: _plain(value) for key, value in fields.items()}


def _plain(value: object) -> Plain:
    match value:
        case None | bool():
            return value
        case bytes():
            return "0x" + value.hex()
        case float():
            return round(value, 4) if math.isfinite(value) else str(value)
        case int():
            return int(value) if abs(value) < EXACT else str(int(value))
        case list() | tuple():
            return [_plain(item) for item in value[:MAX_ITEMS]]
        case _:
            return _harmless(str(value))


def _harmless(text: str) -> str:
    """`text` on one line, cut short: what a peer wrote must neither forge a line nor steer a terminal."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:MAX_CHARACTERS])
    return shown if len(text) <= MAX_CHARACTERS else shown + "…"


class _Console(logging.StreamHandler[TextIO]):
    """Standard error. On a terminal, live lines share its last line, and every event is written above it."""

    def __init__(self, stream: TextIO, lively: bool) -> None:
        super().__init__(stream)
        self.lively = lively and stream.isatty()
        self._live: dict[object, str] = {}

    def show(self, key: object, text: str | None) -> None:
        with self._locked():
            self._clear()
            self._live.pop(key, None)
            if text is not None:
                self._live[key] = text
            self._draw()

    def emit(self, record: logging.LogRecord) -> None:
        self._clear()
        super().emit(record)
        self._draw()

    def _clear(self) -> None:
        if self._live:
            self.stream.write("\r\x1b[2K")

    def _draw(self) -> None:
        if self._live:
            columns = shutil.get_terminal_size().columns
            self.stream.write(_harmless(" | ".join(self._live.values()))[: columns - 1])
            self.stream.flush()

    def _locked(self) -> Any:
        assert self.lock is not None
        return self.lock


class _Bare(logging.Formatter):
    """What happened, and the fields as people read them."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Plain] = getattr(record, "fields", {})
        mark = "! " if record.levelno >= logging.WARNING else ""
        shown = " ".join(f"{key}={_short(key, value)}" for key, value in fields.items() if value is not None)
        line = f"{mark}{_harmless(record.getMessage())} {shown}".rstrip()
        return "\n".join((line, *("  " + each for each in self._traceback(record))))

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        """Of a bug, indented so that no line of it can be taken for an event."""
        text = self.formatException(record.exc_info) if record.exc_info else ""
        return [_harmless(line) for line in text.splitlines()]


class _Lines(_Bare):
    def __init__(self, role: str) -> None:
        super().__init__()
        self.role = role

    def format(self, record: logging.LogRecord) -> str:
        return f"{time_text(record.created)} {self.role:<10} {super().format(record)}"


class _JsonLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat()
        shown = {
            "time": time,
            "role": self.role,
            "level": record.levelname.lower(),
            "event": _harmless(record.getMessage()),
        }
        bug = {"traceback": "\n".join(self._traceback(record))} if record.exc_info else {}
        # In this order, and no field replaces one.
        return json.dumps(shown | getattr(record, "fields", {}) | shown | bug)


def field_text(key: str, value: object) -> str:
    """A field as people see it."""
    return _short(key, _plain(value))


def _short(key: str, value: Plain) -> str:
    if key in UNITS:
        return UNITS[key](value)
    if isinstance(value, list):
        return ",".join(_short(key, item) for item in value) or "none"
    text = str(value)
    return text[:10] + "…" if text.startswith("0x") and len(text) == 66 else text
