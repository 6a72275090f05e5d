"""The evidence that a validator wrote, by digest: on disk before the `Fault` that names it is signed."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from ledger.base import Digest, Fault
from ledger.messages import SignedMessage
from node.errors import NotFound
from node.files import disk_refused, write_atomically
from node.record import Submission
from node.verdicts import Rejected

Writer = Callable[[Submission, Rejected, str], bytes]  # (submission, rejection, engine) -> canonical JSON


@dataclass(frozen=True, slots=True)
class Exhibits:
    """A folder of evidence files; `writer` makes the bytes."""

    folder: Path
    writer: Writer

    def write(self, submission: Submission, rejected: Rejected, engine: str) -> Digest:
        """Writes the evidence of a rejection; its BLAKE3 is what the `Fault` signs. Raises: StoreError."""
        data = self.writer(submission, rejected, engine)
        digest = Digest(blake3(data).digest())
        write_atomically(self.path(digest), data)
        return digest

    def path(self, digest: Digest) -> Path:
        return self.folder / f"{digest.hex()}.json"

    def held(self, digest: Digest) -> Path:
        """Where the evidence lies. Raises: NotFound."""
        path = self.path(digest)
        if not path.is_file():
            raise NotFound("no such evidence here")
        return path

    def delete_named(self, messages: Iterable[SignedMessage]) -> None:
        """Removes the evidence that `messages` name, as far as it is here. Raises: StoreError."""
        for message in messages:
            if isinstance(message.message, Fault):
                path = self.path(message.message.evidence)
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise disk_refused(path, error) from error

    def list(self) -> list[Path]:
        """Evidence files, oldest first."""
        found = [path for path in self.folder.glob("*.json") if re.fullmatch(r"[0-9a-f]{64}", path.stem)]
        return sorted(found, key=lambda path: path.stat().st_mtime)
