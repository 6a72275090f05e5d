"""Answers that peers have not taken yet: in bounded memory, whatever peers do.

Each is a MiB, and whoever asked may take it a byte at a time. Where there is no room for one more, the oldest goes of
the node that has most: who reads as fast as it is sent has one. That is no `Crowd`, in which the newcomer needs less
than others have: 64 nodes that take nothing of one answer each would keep all others' answers back.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from node.errors import Malformed
from node.p2p.limits import MAX_UNTAKEN_BYTES


@dataclass(slots=True)
class Untaken:
    """Of all connections of a process."""

    most: int = MAX_UNTAKEN_BYTES
    answers: dict[trio.CancelScope, tuple[str, int]] = field(default_factory=dict)  # whose, of how many bytes

    @contextmanager
    def answer(self, node: str, size: int) -> Iterator[None]:
        """While `node` takes an answer of `size` bytes. Raises: Malformed: it was given up for another's."""
        with trio.CancelScope() as scope:
            self.answers[scope] = node, size
            self._make_room()
            try:
                yield
            finally:
                self.answers.pop(scope, None)
        if scope.cancelled_caught:
            raise Malformed("an answer that was not taken while there was room for it")

    def _make_room(self) -> None:
        held = Counter[str]()
        for node, size in self.answers.values():
            held[node] += size
        while held.total() > self.most:
            ((greedy, _),) = held.most_common(1)
            scope, (_, size) = next(each for each in self.answers.items() if each[1][0] == greedy)
            held[greedy] -= size
            del self.answers[scope]
            scope.cancel()
