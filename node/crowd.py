"""Who may come in where there is room for so many: where it is full, who has most gives way to who has less.

So whoever takes as much as all together may have, under whatever number of names, keeps nobody else out.
"""

from collections.abc import Callable


class Crowd:
    """Who is in at present, by owner. For one event loop; not for threads."""

    def __init__(self, most: int, most_of_one: int | None = None, *, newest_goes: bool = False) -> None:
        """`newest_goes`, of the owner that has most: for work, which gets on so however often others come. Else the
        oldest does: of connections that is the likeliest to be dead."""
        self._most, self._most_of_one = most, most if most_of_one is None else most_of_one
        self._newest_goes = newest_goes
        self._in: dict[str, dict[object, Callable[[], None]]] = {}  # the oldest first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, owner: str) -> int:
        return len(self._in.get(owner, ()))

    def has_its_most(self, owner: str) -> bool:
        return self.of(owner) >= self._most_of_one

    def enter(self, owner: str, who: object, end: Callable[[], None]) -> bool:
        """Whether `who` has come in; `end` is called where it has to give way. `leave` it in any case."""
        if self.has_its_most(owner) or (self._count >= self._most and not self._made_room(self.of(owner))):
            return False
        self._in.setdefault(owner, {})[who] = end
        self._count += 1
        return True

    def leave(self, owner: str, who: object) -> None:
        """Of no effect where it is not in, or had to give way."""
        of_owner = self._in.get(owner, {})
        if of_owner.pop(who, None) is not None:
            self._count -= 1
        if not of_owner:
            self._in.pop(owner, None)

    def _made_room(self, own: int) -> bool:
        """Only where the owner that has most keeps as much as the newcomer gets: else they would take it from each
        other in turn."""
        heaviest = max(self._in, key=self.of)
        if self.of(heaviest) < own + 2:
            return False
        of_heaviest = self._in[heaviest]
        who = next(reversed(of_heaviest) if self._newest_goes else iter(of_heaviest))
        end = of_heaviest[who]
        self.leave(heaviest, who)
        end()
        return True
