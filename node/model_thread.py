"""The one thread that the model runs on.

glibc keeps what a thread has freed for that thread: calls of a model that take turns among a pool's threads make the
process hold several times what one of them needs. And what else a node does never waits behind a training step.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


async def on_model_thread(
    call: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """As `asyncio.to_thread`, on the process's model thread: one call at a time, in the order of asking."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(call, *args, **kwargs))
