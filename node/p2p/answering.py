"""What peers ask, while this node answers it: so much at once, each in its time, and no longer than its asker waits."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from node.errors import Malformed, NotFound, StoreError
from node.p2p.limits import MAX_REQUESTS, MAX_REQUESTS_PER_PEER, REQUEST_SECONDS
from node.p2p.messages import ANSWERED, BUSY, REFUSED, Asked, Reply

Answer = Callable[[str, str, bytes], Awaitable[bytes]]  # (peer, protocol, request); raises what is refused


@dataclass(slots=True)
class Answering:
    """Of one libp2p process, and ends with it. `send` raises NotFound where that does not read, or has ended; `drained`
    returns once it has read all."""

    send: Callable[[Reply], None]
    drained: Callable[[], Awaitable[None]]
    _tasks: dict[int, tuple[str, "asyncio.Task[None]"]] = field(default_factory=dict)  # by whom it was asked
    _replying: asyncio.Lock = field(default_factory=asyncio.Lock)

    def begin(self, asked: Asked, answer: Answer) -> None:
        """Has it answered; what is over a limit is not begun."""
        same = sum(peer == asked.peer for peer, _ in self._tasks.values())
        if asked.number in self._tasks or len(self._tasks) >= MAX_REQUESTS or same >= MAX_REQUESTS_PER_PEER:
            self._say(Reply(asked.number, BUSY, b""))
            return
        task = asyncio.create_task(self._answer(asked, answer))
        self._tasks[asked.number] = asked.peer, task
        task.add_done_callback(lambda _: self._tasks.pop(asked.number))

    def leave(self, number: int) -> None:
        """Nobody waits for the answer any more."""
        if number in self._tasks:
            self._tasks[number][1].cancel()

    def end(self) -> None:
        """There is no process any more: what of it still runs is heard by nobody."""
        for _, task in self._tasks.values():
            task.cancel()

    async def _answer(self, asked: Asked, answer: Answer) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                body = await answer(asked.peer, asked.protocol, asked.body)
                await self._reply(Reply(asked.number, ANSWERED, body))
        except (Malformed, NotFound, StoreError, TimeoutError):
            self._say(Reply(asked.number, REFUSED, b""))

    async def _reply(self, reply: Reply) -> None:
        """Sends it once the process has read what was sent before: a MiB each, and many may be ready at once."""
        async with self._replying:
            await self.drained()
            self.send(reply)

    def _say(self, reply: Reply) -> None:
        with suppress(NotFound):
            self.send(reply)
