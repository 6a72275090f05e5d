"""Calls of a model in threads: what nobody waits for ends."""

import asyncio
import threading
import time
from typing import Any

import pytest

from node.model_thread import Abandoned, abandonable, on_model_thread


@pytest.mark.parametrize("run", [on_model_thread, asyncio.to_thread])
async def test_a_call_that_nobody_waits_for_ends_before_the_cancellation_goes_on(run: Any) -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(steps: int, progress: object) -> int:
        begun.set()
        try:
            for done in range(steps):
                time.sleep(0.01)
                progress(done, steps)  # type: ignore[operator]
        except Abandoned:
            ended.set()
            raise
        return steps

    task = asyncio.ensure_future(abandonable(run, work, 10_000, progress=lambda _done, _total: None))
    await asyncio.to_thread(begun.wait)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_call_that_is_waited_for_gives_its_result_and_its_progress() -> None:
    heard: list[tuple[int, int]] = []

    def work(number: int, progress: object) -> int:
        progress(1, 2)  # type: ignore[operator]
        return number

    assert await abandonable(asyncio.to_thread, work, 7, progress=lambda done, total: heard.append((done, total))) == 7
    assert heard == [(1, 2)]
