"""Which announcements were heard already: by digest, for as long as one of them could be taken for new."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

MAX_AGE_SECONDS: Final = 300.0  # of a message, in either direction: clocks differ
REMEMBERED_SECONDS: Final = 2 * MAX_AGE_SECONDS  # from so long before its own time to so long after it, it is taken
MAX_SEEN: Final = 1 << 17  # half of them for nodes that said little: 20 that say all they may do not fill the other
OWN: Final = ""  # as the origin of what this node says, for which there is always room
LITTLE: Final = 64  # messages: a heartbeat each minute, offers each two


@dataclass(slots=True)
class Seen:
    """Nothing is forgotten early: where there is no room, what is new is refused."""

    now: Callable[[], float]  # monotonic, seconds
    digests: "OrderedDict[bytes, tuple[float, str]]" = field(default_factory=OrderedDict)  # the oldest first
    by_origin: Counter[str] = field(default_factory=Counter)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self.digests

    def add(self, digest: bytes, origin: str) -> bool:
        """Whether there is room to remember that `origin` said what `digest` is of; then it is."""
        self._forget()
        most = MAX_SEEN if self.by_origin[origin] < LITTLE else MAX_SEEN // 2
        if origin != OWN and len(self.digests) >= most:
            return False
        self.digests[digest] = self.now(), origin
        self.by_origin[origin] += 1
        return True

    def _forget(self) -> None:
        late = self.now() - REMEMBERED_SECONDS
        while self.digests and next(iter(self.digests.values()))[0] < late:
            _, (_, origin) = self.digests.popitem(last=False)
            self.by_origin[origin] -= 1
            if not self.by_origin[origin]:
                del self.by_origin[origin]
