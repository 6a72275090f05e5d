"""Who of those who receive at the same time fetches which chunk from the whole sources: agreed without a word.

Rendezvous hashing: every member has a score for every chunk, and the highest has the chunk. Whoever knows the same
members finds the same, and whoever leaves changes only what was its own. Each takes its highest scores first, so that
what it fetches before it knows of the others is its own afterwards too. A member that does not hand on its part loses
it.

Source: D. Thaler and C. V. Ravishankar, Using Name-Based Mappings to Increase Hit Rates, 1998.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from node.shards.bitmaps import has, unpacked
from node.shards.wanted import Flight, Kind

LEAST_WAITS = 3  # in vain, before a member is dismissed that has handed on less than that

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]


def keys_of(digests: Sequence[bytes]) -> Words:
    """The first 8 bytes of each digest, shape (chunks,)."""
    return np.frombuffer(b"".join(digest[:8] for digest in digests), dtype="<u8").astype(np.uint64)


def scores(members: Sequence[str], keys: Words) -> Words:
    """Of every member for every chunk, shape (members, chunks). Source of the mixing: S. Vigna, splitmix64."""
    names = np.array([int.from_bytes(blake3(each.encode()).digest(8), "little") for each in members], dtype=np.uint64)
    mixed = keys[None, :] ^ names[:, None]
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


@dataclass(slots=True)
class Parts:
    """Of one checkpoint. `me` is this node's own URL as others know it, None if they cannot ask it; `shuffled` puts in
    an order of this node's own."""

    keys: Words
    me: Callable[[], str | None]
    shuffled: Callable[[Sequence[int]], list[int]]
    bitmaps: dict[str, bytes] = field(default_factory=dict)
    _whole: set[str] = field(default_factory=set)  # sources that have everything
    _owners: dict[int, str] = field(default_factory=dict)  # of the members' parts
    _taken: set[int] = field(default_factory=set)  # from members that did not hand them on
    _waits: Counter[str] = field(default_factory=Counter)  # in vain, by member
    _handed_on: Counter[str] = field(default_factory=Counter)  # chunks, by member

    def see(self, bitmaps: dict[str, bytes]) -> None:
        """Takes in what sources say they have."""
        self.bitmaps = bitmaps

    def came(self, flight: Flight) -> None:
        """A chunk came, and was right."""
        self._handed_on[flight.source] += 1

    def in_vain(self, flight: Flight) -> None:
        """No chunk came; if it is the source's part, this node fetches that itself from now on."""
        if flight.kind is Kind.AWAITED:
            self._taken.add(flight.number)
            self._waits[flight.source] += 1

    def sources(self, kind: Kind, number: int, usable: Sequence[str]) -> list[str]:
        """Who of `usable` is asked for chunk `number` for that reason."""
        if kind is Kind.UNSEEN:
            return list(usable)
        if kind is Kind.AWAITED:
            return [each for each in usable if each == self._owners.get(number)]
        holders = [each for each in usable if has(self.bitmaps.get(each, b""), number)]
        return [each for each in holders if each not in self._whole] if kind is Kind.OFFERED else holders

    def sort(self, numbers: Sequence[int]) -> dict[Kind, list[int]]:
        """Chunks by why they are asked for, the next one last."""
        bits = {each: unpacked(bitmap, len(self.keys)) for each, bitmap in self.bitmaps.items()}
        self._whole = {each for each, held in bits.items() if held.all()}
        nobody = np.zeros(len(self.keys), np.int64)
        held = sum(bits.values(), nobody)
        offered = sum((each for name, each in bits.items() if name not in self._whole), nobody)
        missing = np.array(numbers, dtype=np.int64)
        own, awaited = self._shared_out(missing[(held[missing] > 0) & (offered[missing] == 0)])
        drawn = np.array(self.shuffled(missing[offered[missing] > 0].tolist()), dtype=np.int64)
        return {
            Kind.OWN: own,
            Kind.OFFERED: drawn[np.argsort(-offered[drawn], kind="stable")].tolist(),  # the rarest first
            Kind.AWAITED: awaited,
            Kind.UNSEEN: sorted(missing[held[missing] == 0].tolist(), reverse=True),
        }

    def _shared_out(self, scarce: Numbers) -> tuple[list[int], list[int]]:
        """This node's part, and that of the members; each by its owner's score."""
        me = self.me()
        members = [each for each in self.bitmaps if each not in self._whole and self._hands_on(each)]
        table = scores([me or "", *members], self.keys[scarce])
        if me is None and members:
            table[0] = 0
        table[0, [number in self._taken for number in scarce.tolist()]] = np.iinfo(np.uint64).max
        owners = table.argmax(axis=0)
        order = np.argsort(table.max(axis=0), kind="stable")
        self._owners = {int(scarce[place]): members[owners[place] - 1] for place in order if owners[place]}
        own = owners[order] == 0
        return scarce[order[own]].tolist(), scarce[order[~own]].tolist()

    def _hands_on(self, member: str) -> bool:
        return self._waits[member] < max(LEAST_WAITS, self._handed_on[member])
