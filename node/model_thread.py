"""The one thread that the model runs on; and threads that only wait for a model that runs elsewhere.

glibc keeps what a thread has freed for that thread: calls of a model that take turns among a pool's threads make the
process hold several times what one of them needs. And what else a node does never waits behind a training step.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from node.errors import EngineError

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


async def on_model_thread(
    call: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """As `asyncio.to_thread`, on the process's model thread: one call at a time, in the order of asking."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(call, *args, **kwargs))


class Abandoned(Exception):
    """Nobody waits any more for what is being done."""


async def abandonable(
    run: Callable[..., Awaitable[Result]],
    call: Callable[..., Result],
    *args: Any,
    progress: Callable[[int, int], None],
) -> Result:
    """`call(*args, progress)` in the thread that `run` takes, which is `on_model_thread` or `asyncio.to_thread`; once
    this is cancelled, `progress` raises when it is called.

    The call is over before the cancellation goes on: what it used is free for others.
    """
    abandoned = threading.Event()

    def heard(done: int, total: int) -> None:
        if abandoned.is_set():
            raise Abandoned
        progress(done, total)

    running = asyncio.ensure_future(run(call, *args, heard))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        abandoned.set()
        with suppress(Abandoned, EngineError):
            await running
        raise
