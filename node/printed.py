"""What another process prints: its last words in memory, and a log on disk that is bounded.

It is read from a pipe here rather than written to a file there: no disk, full or failing, ends that process.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from node.files import open_regular

LAST_BYTES: Final = 1 << 13  # of its last words
MAX_LOG_BYTES: Final = 8 << 20  # on disk, in all: a start prints tens of kilobytes


class Printed:
    """Of one process and those that it starts; `descriptor` is what they print to, until it is `closed` here."""

    def __init__(self, log: Path, most: int = MAX_LOG_BYTES) -> None:
        """What they print goes to `log`, anew, and what came before the last half of `most` bytes is dropped.

        Raises: OSError: the system has no more descriptors.
        """
        self.log = log
        self._before = log.with_name(log.name + ".1")
        self._most = most // 2  # of each of the two files
        self._last = b""
        source, self.descriptor = os.pipe()
        with suppress(OSError):
            log.unlink(missing_ok=True)
            self._before.unlink(missing_ok=True)
        self._reading = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._reading.start()

    def closed(self) -> None:
        """Once the process has it, nobody here prints: its end is that of all who do."""
        os.close(self.descriptor)

    def last_lines(self, count: int, wait_seconds: float) -> list[str]:
        """The last that were printed; until all who print have ended, that is waited for."""
        self._reading.join(wait_seconds)
        return self._last.decode(errors="replace").splitlines()[-count:]

    def _read(self, source: int) -> None:
        with open(source, "rb", buffering=0) as pipe:
            while piece := pipe.read(1 << 16):
                self._last = (self._last + piece)[-LAST_BYTES:]
                with suppress(OSError):  # what the disk does not take is in memory for a while
                    self._keep(piece)

    def _keep(self, piece: bytes) -> None:
        with os.fdopen(open_regular(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
            if file.tell() + len(piece) > self._most:
                self._before.unlink(missing_ok=True)  # else nothing happens where both are one file
                self.log.replace(self._before)
                self._keep(piece[: self._most])
                return
            file.write(piece)
