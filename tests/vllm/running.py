"""vLLM's engine in a process of the tests, driven step by step, with what its worker's batch held in every step.

What is recorded is read from the worker's own state after a step: which requests had rows, from which token of their
sequence on, how many tokens were computed, and whether the row's token was dropped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from node.engines.vllm.messages import Settings

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}
IDLE = 1 << 30  # a call before this step waits until nothing is under way
Call = tuple[int, str, tuple[Any, ...]]  # before which step, which method of `Batch`, its arguments


@dataclass(frozen=True, slots=True)
class Place:
    """A row of a step: request `name`, tokens `start` to `end` of its sequence; `dropped` if it is not complete."""

    name: str
    start: int
    end: int
    dropped: bool


@dataclass(slots=True)
class Record:
    """What a run gave: `answers` by job, `named` the requests of each job, the places of every step, `values` of calls,
    and what is left in the process at the end."""

    answers: dict[int, list[Any]] = field(default_factory=dict)
    named: dict[int, list[str]] = field(default_factory=dict)
    steps: list[list[Place]] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)

    def places(self, name: str) -> list[Place]:
        return [place for step in self.steps for place in step if place.name == name]

    def spans(self, job: int) -> list[tuple[int, int]]:
        """First and last step of each request of a job."""
        return [_span([any(p.name == name for p in step) for step in self.steps]) for name in self.named[job]]


def _span(present: list[bool]) -> tuple[int, int]:
    return present.index(True), len(present) - 1 - present[::-1].index(True)


def prepare() -> None:
    """In a process that starts several engines: vLLM's kernels for the CPU are registered once, and before numba is
    imported, whose modules its search does not bear."""
    os.environ.update(ENVIRONMENT)
    from vllm.platforms import current_platform

    current_platform.register_triton_kernel_overrides()
    type(current_platform).register_triton_kernel_overrides = classmethod(lambda _cls: None)


@cache
def started(settings: Settings) -> Any:
    from node.engines.vllm.serving import Batch

    return Batch(settings)


def run(settings: Settings, calls: Sequence[Call]) -> Record:
    """Calls the methods of the engine of `settings`, each before its step, and steps until nothing is under way."""
    batch = started(settings)
    record = Record()
    pending = sorted(calls, key=lambda call: call[0])
    while pending or batch.busy:
        while pending and (pending[0][0] <= len(record.steps) or not batch.busy):
            _, method, arguments = pending.pop(0)
            record.values.append(getattr(batch, method)(*arguments))
            if method in ("generate", "prefill"):
                record.named[arguments[0]] = list(batch._jobs[arguments[0]].requests)
        for number, job in batch.step() if batch.busy else ():
            record.answers[number] = job.answer
        record.steps.append(_places(batch))
    record.left = left(batch)
    return record


def _runner(batch: Any) -> Any:
    return batch._engine.model_executor.driver_worker.worker.model_runner


def _scheduler(batch: Any) -> Any:
    return batch._engine.engine_core.engine_core.scheduler


def _places(batch: Any) -> list[Place]:
    runner = _runner(batch)
    count = runner.input_batch.num_reqs
    edges = runner.query_start_loc.np[: count + 1].tolist()
    return [
        Place(
            runner.requests[known].sampling_params.extra_args["name"],
            int(runner.optimistic_seq_lens_cpu[b]) - (edges[b + 1] - edges[b]),
            int(runner.optimistic_seq_lens_cpu[b]),
            bool(runner.discard_request_mask.np[b]),
        )
        for b, known in enumerate(runner.input_batch.req_ids[:count])
    ]


def left(batch: Any) -> dict[str, int]:
    """How many requests, blocks and traces are held."""
    scheduler = _scheduler(batch)
    pool = scheduler.kv_cache_manager.block_pool
    seeded = _runner(batch).sampler
    return {
        "jobs": len(batch._jobs) + len(batch._job_of),
        "requests": len(scheduler.requests) + len(scheduler.running) + len(scheduler.waiting),
        "blocks": pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),  # one is vLLM's own, for padding
        "traces": len(seeded._under_way) + len(seeded._steps),
    }


def blocks(settings: Settings) -> tuple[int, int]:
    """How many blocks of keys and values requests can have, and tokens of one."""
    scheduler = _scheduler(started(settings))
    return scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1, scheduler.block_size
