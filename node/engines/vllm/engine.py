"""The engine over vLLM as the node sees it: the model runs in a process of its own, started when it is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hashing.errors import HashingError
from hashing.sampling import key_of
from node.engines.base import Policy, Prompt
from node.engines.changes import Change, require_fit
from node.engines.stored import Shapes, read_config, require_sizes, stored_shapes
from node.engines.vllm.messages import (
    Generate,
    Order,
    Patch,
    Prefill,
    Ready,
    Settings,
    Swap,
    WeightsDigest,
)
from node.engines.vllm.process import HANG_SECONDS, START_SECONDS, EngineProcess, ask
from node.errors import EngineError
from node.log import event, warn
from node.progress import OnProgress
from node.rollouts.rollout import Replay, Rollout, Sample

CPU_CACHE_BYTES = 1 << 30  # of keys and values, where there is no GPU whose free memory vLLM could take
CPU_BATCH_ROWS, GPU_BATCH_ROWS = 32, 256
SMALLEST_BATCH_ROWS = 4
# What vLLM, torch and CUDA say when memory does not suffice, in small letters; signal 9 is the kernel's answer.
OUT_OF_MEMORY = (
    "out of memory", "outofmemory", "allocate memory", "no available memory", "available memory on node",
    "larger than the available kv cache", "killed by signal 9",
)  # fmt: skip
AnyRow = TypeVar("AnyRow")


@dataclass(frozen=True, slots=True)
class Hardware:
    """What engine processes run on. gpus: of each process, the numbers of those that share its model; one process on
    the CPU if there are none. threads: of the CPU. cache_bytes: of keys and values, on the CPU."""

    gpus: tuple[tuple[int, ...], ...] = ()
    threads: int | None = None
    cache_bytes: int = CPU_CACHE_BYTES


class VllmEngine:
    """An `Engine`. `generate` and `replay` may be called from several threads: what they ask shares running batches."""

    slots_at_once = 2  # while the longest rows of one end, the next fills the batch

    def __init__(
        self,
        policy: Policy,
        hardware: Hardware,
        log: Path,
        batch_rows: int | None = None,
        hang_seconds: float = HANG_SECONDS,
    ) -> None:
        """Nothing is started yet. Process i prints into `log` with its number; at most `batch_rows` sequences run in
        each at once; one that says nothing for `hang_seconds` while it is asked for something is ended."""
        self._policy = policy
        self._hardware = hardware
        self._log = log
        self._batch_rows = batch_rows or (GPU_BATCH_ROWS if hardware.gpus else CPU_BATCH_ROWS)
        self._hang_seconds = hang_seconds
        self._processes: list[EngineProcess] = []
        self._ready = Ready("vllm", 0, 0)
        self._config = b""
        self._shapes: Shapes = {}

    @property
    def name(self) -> str:
        return self._ready.name

    def load(self, folder: Path) -> None:
        """The weights of `folder`, in place if what is loaded has the same config.json.

        Those that cannot be read, or do not fit the same config.json, leave what was loaded; a failure while they are
        read, or while another model is built, leaves nothing loaded.

        Raises:
            EngineError: they are not what is loaded, for the reason that it names.
        """
        config, shapes = read_config(folder), stored_shapes(folder)
        require_sizes(folder, config, shapes)
        if self._alive and config == self._config:
            if shapes != self._shapes:
                raise EngineError(f"{folder}: tensors are not those of the configuration")
            self._ask_all(Swap(str(folder)), max(self._hang_seconds, START_SECONDS))  # it reads what a start reads
            return
        self.close()
        self._ready = self._start(folder)
        self._config, self._shapes = config, shapes

    @property
    def _alive(self) -> bool:
        return bool(self._processes) and all(process.alive for process in self._processes)

    def _start(self, folder: Path) -> Ready:
        """Processes with the weights of `folder`, their batches as large as memory allows. Raises: EngineError."""
        refused: EngineError | None = None
        for settings in self._attempts(folder):
            try:
                for number, gpus in enumerate(self._hardware.gpus or [()]):
                    self._processes.append(self._process(settings, number, gpus))
                ready: list[Ready] = [process.started() for process in self._processes]
            except EngineError as error:
                self.close()
                if not any(said in str(error).lower() for said in OUT_OF_MEMORY):
                    raise EngineError(f"{folder}: {error}") from error
                warn("engine out of memory, trying a smaller batch", rows=settings.batch_rows, reason=error)
                refused = error
                continue
            event("engine started", engine=ready[0].name, processes=len(ready), rows=settings.batch_rows)
            return ready[0]
        raise EngineError(
            f"{folder}: memory does not suffice, even for {SMALLEST_BATCH_ROWS} sequences at once. {refused}\n"
            "Free memory (other programs on the GPU?), let more GPUs share the model (--tensor-parallel), or choose a "
            "run of a smaller model"
        )

    def _process(self, settings: Settings, number: int, gpus: tuple[int, ...]) -> EngineProcess:
        log = self._log.with_suffix(f".{number}.log")
        try:
            return EngineProcess(settings, environment(gpus, self._hardware.threads), log, self._hang_seconds)
        except OSError as error:
            raise EngineError(f"no engine process could be started, with its log in {log}: {error.strerror}") from error

    def _attempts(self, folder: Path) -> Iterator[Settings]:
        cache = None if self._hardware.gpus else self._hardware.cache_bytes
        rows, ranks = self._batch_rows, len(self._hardware.gpus[0]) if self._hardware.gpus else 1
        settings = Settings(
            str(folder), self._policy, self._policy.max_sequence,
            batch_rows=rows, batch_tokens=None, cache_bytes=cache, ranks=ranks, prefix_caching=True,
        )  # fmt: skip
        yield settings
        while settings.batch_rows > SMALLEST_BATCH_ROWS:
            smaller = max(SMALLEST_BATCH_ROWS, settings.batch_rows // 2)
            settings = replace(settings, batch_rows=smaller, cache_bytes=cache and cache * smaller // rows)
            yield settings

    def patch(self, folder: Path, changes: Sequence[Change]) -> None:
        """As `Engine.patch`.

        Raises:
            EngineError: a change does not fit, and nothing was written; or the process failed and nothing is loaded.
        """
        self._require_loaded()
        if read_config(folder) != self._config:
            raise EngineError(f"{folder}: not the configuration that is loaded")
        require_fit(changes, self._shapes)
        self._ask_all(Patch(tuple(changes)))

    def weights_digest(self) -> str:
        """As `Engine.weights_digest`. Raises: EngineError: nothing is loaded, or processes hold different weights."""
        digests: set[str] = set(self._ask_all(WeightsDigest()))
        if len(digests) != 1:
            self.close()
            raise EngineError(f"engine processes hold different weights: {', '.join(sorted(digests))}")
        return digests.pop()

    def generate(self, seed: bytes, prompts: Sequence[Prompt], progress: OnProgress) -> list[Sample]:
        """As `Engine.generate`; the total shrinks where a row ends early.

        Raises:
            EngineError: nothing is loaded, a prompt cannot be run, or the process failed.
        """
        _require_seed(seed)
        for prompt in prompts:
            self._require_ids(prompt, len(prompt) + self._policy.max_output_tokens)
        by_row = [prompt for prompt in prompts for _ in range(self._policy.group_size)]
        shares = self._shares(list(enumerate(by_row)))
        samples: list[list[Sample]] = self._ask([(p, Generate(seed, rows)) for p, rows in shares], progress)
        return [sample for share in samples for sample in share]

    def replay(self, seed: bytes, rollouts: Sequence[Rollout], progress: OnProgress) -> list[Replay]:
        """As `Engine.replay`.

        Raises:
            EngineError: nothing is loaded, a rollout cannot be run, or the process failed.
        """
        _require_seed(seed)
        for rollout in rollouts:
            self._require_ids(rollout.prompt_ids, len(rollout.prompt_ids) + len(rollout.output_ids))
            self._require_ids(rollout.output_ids, len(rollout.output_ids))
        rows = [(r.group * self._policy.group_size + r.index, r.prompt_ids, r.output_ids) for r in rollouts]
        shares = self._shares(rows)
        replays: list[list[Replay]] = self._ask([(p, Prefill(seed, share)) for p, share in shares], progress)
        return [replay for share in replays for replay in share]

    def close(self) -> None:
        """Ends the processes and gives their memory back."""
        for process in self._processes:
            process.close()
        self._processes, self._config, self._shapes = [], b"", {}

    def _shares(self, rows: list[AnyRow]) -> list[tuple[EngineProcess, tuple[AnyRow, ...]]]:
        """The rows of each process that has any, in order: those of one prompt stay together where they can."""
        count = len(self._processes)
        parts = [tuple(rows[i * len(rows) // count : (i + 1) * len(rows) // count]) for i in range(count)]
        return [(process, part) for process, part in zip(self._processes, parts, strict=True) if part]

    def _ask_all(self, order: Order, patience: float | None = None) -> list[Any]:
        return self._ask([(process, order) for process in self._processes], patience=patience)

    def _ask(
        self,
        orders: Sequence[tuple[EngineProcess, Order]],
        progress: OnProgress = lambda _done, _total: None,
        patience: float | None = None,
    ) -> list[Any]:
        """The answer of each process to its order, which says nothing for `patience` seconds at most.

        Raises: EngineError: there is none, or one failed; all end then.
        """
        self._require_loaded()
        try:
            return ask(orders, progress, patience or self._hang_seconds)
        except EngineError:
            self.close()  # the next load starts anew
            raise

    def _require_loaded(self) -> None:
        if not self._processes:
            raise EngineError("no model is loaded")

    def _require_ids(self, ids: Prompt, length: int) -> None:
        """Raises EngineError unless `ids` are tokens of the model and a sequence of `length` tokens has room in it."""
        self._require_loaded()
        if not ids or min(ids) < 0 or max(ids) >= self._ready.vocabulary:
            raise EngineError(
                f"prompt or output is empty, or has a token outside the {self._ready.vocabulary} of the model"
            )
        if length > self._ready.positions:
            raise EngineError(f"prompt and output of {length} tokens: there is room for {self._ready.positions}")


def environment(gpus: tuple[int, ...], threads: int | None) -> dict[str, str]:
    """What an engine process on `gpus`, or with `threads` of the CPU, is started with beside the node's own."""
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the numbers of nvidia-smi
        "HF_HUB_OFFLINE": "1",  # everything is in the folder
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the process is ours already
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # the runner whose rows `sampler` knows
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # several engines on one CPU would be bound to the same cores
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # weights on large pages: a step of few rows is a fifth faster
        "OMP_NUM_THREADS": str(threads or len(os.sched_getaffinity(0))),
        "GOMP_SPINCOUNT": "30000",  # a tenth of usual: threads that wait in a loop hold up those of the noise
    }


def _require_seed(seed: bytes) -> None:
    try:
        key_of(seed)
    except HashingError as error:
        raise EngineError(f"no seed: {error}") from error
