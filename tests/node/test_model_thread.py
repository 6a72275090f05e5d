"""One thread for the model."""

import asyncio
import threading
import time

from node.model_thread import on_model_thread


def named(order: list[int], number: int, *, seconds: float) -> str:
    time.sleep(seconds)
    order.append(number)
    return threading.current_thread().name


async def test_calls_run_one_after_another_on_one_thread() -> None:
    order: list[int] = []

    names = await asyncio.gather(*(on_model_thread(named, order, k, seconds=0.03 - k / 100) for k in range(3)))

    assert order == [0, 1, 2]
    assert set(names) == {"model_0"}


async def test_other_blocking_work_goes_on_meanwhile() -> None:
    free = threading.Event()
    held = asyncio.ensure_future(on_model_thread(free.wait, 10))
    await asyncio.to_thread(free.set)

    assert await held
