"""What a role gives of its line and its disk, as it leaves it on that disk for `status`: another process reads it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from node.errors import StoreError
from node.files import write_atomically
from node.roles.member import Member

SAID_SECONDS: Final = 10.0  # between two words; the rate is that of the time between them
FRESH_SECONDS: Final = 60  # older than this, its role does not run any more
MAX_FILE_BYTES: Final = 4 << 10

_Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class Lending(BaseModel):
    """Limits are None where there are none; `at` is in seconds since 1970, `sent_bytes` since the process began."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    at: _Count
    serves_weights: bool
    upload_limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None  # bytes a second
    sent_bytes_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    sent_bytes: _Count
    quota_bytes: _Count | None


def read_lending(path: Path, now: float) -> Lending | None:
    """The last word in `path` of a role that runs; None where none does, or what is there is not its."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        found = Lending.model_validate_json(data) if len(data) <= MAX_FILE_BYTES else None
    except (OSError, ValidationError):
        return None
    return None if found is None or abs(now - found.at) > FRESH_SECONDS else found


@asynccontextmanager
async def lending(member: Member) -> AsyncIterator[None]:
    """Says now and then, while the block runs, what is given; a word that a kill leaves behind grows old."""
    saying = asyncio.create_task(_say_on(member))
    try:
        yield
    finally:
        saying.cancel()
        await asyncio.gather(saying, return_exceptions=True)
        with suppress(OSError):
            member.state.sharing.unlink(missing_ok=True)


async def _say_on(member: Member) -> None:
    sent, since = member.uplink.sent_bytes, member.clock.monotonic()
    rate = 0.0
    while True:
        await asyncio.to_thread(_say, member, rate)
        await member.clock.sleep(SAID_SECONDS)
        before, began = sent, since
        sent, since = member.uplink.sent_bytes, member.clock.monotonic()
        rate = (sent - before) / max(since - began, 1e-3)


def _say(member: Member, rate: float) -> None:
    """What the disk refuses is not worth a line: what is there grows old."""
    sharing, uplink = member.settings.sharing, member.uplink
    word = {
        "at": int(time.time()),
        "serves_weights": sharing.weights,
        "upload_limit": sharing.upload_bytes_per_second,
        "sent_bytes_s": round(rate, 1),
        "sent_bytes": uplink.sent_bytes,
        "quota_bytes": sharing.quota_bytes,
    }
    with suppress(StoreError):
        write_atomically(member.state.sharing, json.dumps(word).encode())
