"""Who served wrong bytes, by HTTP or libp2p: URLs, and the nodes that announced them. Remembered beyond the process, a
line of JSON each at the end of a file."""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from node.errors import StoreError
from node.files import OddFile, open_regular, write_atomically

BAN_SECONDS = 86_400.0  # a liar has lied for a day then, and an address may be somebody else's by then
BANNED = "banned"  # the file's name, in the folder of a store
MAX_BANS = 4096  # the oldest is forgotten first
MAX_LINE_BYTES = 4096
MAX_REASON = 200  # characters


class _Ban(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    source: Annotated[str, Field(max_length=1024)]
    reason: Annotated[str, Field(max_length=MAX_REASON)]
    when: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # Unix time


class Bans:
    """Of the file at `path`, which is made with the first ban. None: of this process alone."""

    def __init__(self, path: Path | None = None, wall: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall = wall
        self._bans: dict[str, _Ban] = {}
        if path is not None:
            self._read(path)

    def __contains__(self, source: object) -> bool:
        ban = self._bans.get(str(source))
        return ban is not None and self._lasts(ban)

    @property
    def reasons(self) -> dict[str, str]:
        """By source, the oldest first."""
        return {source: ban.reason for source, ban in self._bans.items() if self._lasts(ban)}

    def add(self, source: str, reason: str) -> None:
        """Bans `source`. Where the disk refuses it, that lasts as long as the process."""
        ban = _Ban(source=source[:1024], reason=reason[:MAX_REASON], when=self._wall())
        self._put(ban)
        if self._path is not None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with suppress(OSError), os.fdopen(open_regular(self._path, flags), "a", encoding="utf-8") as file:
                # In one piece, and on a line of its own whatever a kill or a full disk has left of the one before.
                file.write("\n" + json.dumps(ban.model_dump()) + "\n")

    def _lasts(self, ban: _Ban) -> bool:
        return self._wall() - BAN_SECONDS < ban.when

    def _put(self, ban: _Ban) -> None:
        self._bans.pop(ban.source, None)
        self._bans[ban.source] = ban
        if len(self._bans) > MAX_BANS:
            del self._bans[next(iter(self._bans))]

    def _read(self, path: Path) -> None:
        """What lasts still; a line that nobody can read bans nobody. The file is written anew where it has grown."""
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - MAX_BANS * MAX_LINE_BYTES, 0))
                lines = [line for line in file.read(MAX_BANS * MAX_LINE_BYTES).splitlines() if line]
        except OddFile:  # but for a folder, it makes way
            with suppress(OSError):
                path.unlink()
            return
        except OSError:  # no file, as a rule
            return
        for line in lines:
            with suppress(ValidationError):
                ban = _Ban.model_validate_json(line)
                if self._lasts(ban) and ban.when <= self._wall():
                    self._put(ban)
        if len(lines) > MAX_BANS:
            kept = "".join(json.dumps(ban.model_dump()) + "\n" for ban in self._bans.values())
            with suppress(StoreError):
                write_atomically(path, kept.encode())
