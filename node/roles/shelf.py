"""What a role hands out by libp2p streams: manifests of weights, and rollout files, a piece at a time."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from ledger.base import Digest
from node.errors import NotFound
from node.files import disk_refused
from node.p2p.content import Kind, Piece
from node.roles.member import Member
from node.rollouts.store import RolloutStore

LIBP2P = "libp2p"  # whose share of the uplink it is: streams have no address


@dataclass(frozen=True, slots=True)
class RoleShelf:
    """Of one member: its checkpoints' manifests, and its rollout files."""

    member: Member

    async def piece(self, wanted: Piece) -> tuple[int, bytes]:
        """Size of the whole, and the piece, once the uplink has room for it. Raises: NotFound, StoreError."""
        size, data = await asyncio.to_thread(self._piece, wanted)
        await self.member.uplink.turn(LIBP2P, len(data))
        self.member.uplink.sent_bytes += len(data)
        return size, data

    def _piece(self, wanted: Piece) -> tuple[int, bytes]:
        path = self._path(wanted.kind, wanted.digest)
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                file.seek(min(wanted.offset, size))
                data = file.read(wanted.length)
        except FileNotFoundError as error:
            raise NotFound("this node does not hold it") from error
        except OSError as error:
            raise disk_refused(path, error) from error
        if not data:
            raise NotFound(f"it has {size} bytes")
        return size, data

    def _path(self, kind: Kind, digest: Digest) -> Path:
        if kind is Kind.MANIFEST:
            return self.member.checkpoints.manifest_path(digest)
        files = RolloutStore(self.member.state.rollouts)
        if not files.holds(digest):
            raise NotFound("this node does not hold it")
        return files.path(digest)
