"""One line per event that a person would ask about, for people or, with `json_lines`, for machines."""

import json
import logging
import sys
from datetime import UTC, datetime

MAX_CHARACTERS = 500  # of one field

LOGGER = logging.getLogger("intellect-node")
LIBRARIES = ("ledger", "node")  # packages of this program that log by their own module's name


def event(what: str, /, **fields: object) -> None:
    """Logs that `what` happened. Bytes are shown in hex; nothing secret is ever a field."""
    LOGGER.info(what, extra={"fields": {key: _plain(value) for key, value in fields.items()}})


def warn(what: str, /, **fields: object) -> None:
    """Logs something that a person may have to act on."""
    LOGGER.warning(what, extra={"fields": {key: _plain(value) for key, value in fields.items()}})


def configure(role: str, *, json_lines: bool) -> None:
    """Sends events to standard error, each with its time and `role`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(role) if json_lines else _Lines(role))
    for logger in (LOGGER, *map(logging.getLogger, LIBRARIES)):
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False


def _plain(value: object) -> str | int | float:
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, float):
        return round(value, 4)
    return value if isinstance(value, int) else _harmless(str(value))


def _harmless(text: str) -> str:
    """`text` on one line, cut short: what a peer wrote must neither forge a line nor steer a terminal."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:MAX_CHARACTERS])
    return shown if len(text) <= MAX_CHARACTERS else shown + "…"


class _Lines(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self.role = role

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        mark = "! " if record.levelno >= logging.WARNING else ""
        shown = " ".join(f"{key}={_short(value)}" for key, value in fields.items())
        line = f"{time} {self.role:<10} {mark}{_harmless(record.getMessage())} {shown}".rstrip()
        return "\n".join((line, *("  " + each for each in self._traceback(record))))

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        """Of a bug, indented so that no line of it can be taken for an event."""
        text = self.formatException(record.exc_info) if record.exc_info else ""
        return [_harmless(line) for line in text.splitlines()]


class _JsonLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        time = datetime.fromtimestamp(record.created, UTC).isoformat()
        shown = {"time": time, "role": self.role, "level": record.levelname.lower(), "event": record.getMessage()}
        bug = {"traceback": "\n".join(self._traceback(record))} if record.exc_info else {}
        return json.dumps(shown | fields | bug)


def _short(value: object) -> str:
    text = str(value)
    return text[:10] + "…" if text.startswith("0x") and len(text) == 66 else text
