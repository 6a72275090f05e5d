"""vLLM's engine in this process: jobs come in, their rows share one running batch, and finished jobs go out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import vllm
from vllm import EngineArgs, SamplingParams
from vllm.inputs.engine import tokens_input
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.llm_engine import LLMEngine

from node.engines.base import Prompt
from node.engines.changes import Change
from node.engines.stored import read_config
from node.engines.vllm.messages import Ready, Settings
from node.engines.vllm.sharing import share_prompts
from node.engines.vllm.traces import Proven
from node.engines.weights import require_tensors
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH, Replay, Sample

CPU_BLOCK_TOKENS = 32  # vLLM's own choice is 128, and prompts shorter than a block are not shared; fewer is slow
WORKER = "node.engines.vllm.worker.ProvingWorker"


@dataclass(slots=True)
class Job:
    """Requests that were begun together, and what of them is finished. `most`: tokens of one."""

    requests: list[str]
    most: int
    results: dict[str, Sample | Replay] = field(default_factory=dict)
    tokens: int = 0  # of finished requests

    @property
    def finished(self) -> bool:
        return len(self.results) == len(self.requests)

    @property
    def answer(self) -> list[Sample | Replay]:
        return [self.results[request] for request in self.requests]

    @property
    def under_way(self) -> list[str]:
        return [request for request in self.requests if request not in self.results]


class Batch:
    """The running batch of all jobs."""

    def __init__(self, settings: Settings) -> None:
        """Loads the model, which takes from seconds to minutes. Raises: whatever vLLM does."""
        self._policy = settings.policy
        self._engine = started(settings)
        share_prompts(self._engine.engine_core.engine_core.scheduler.kv_cache_manager)
        self._jobs: dict[int, Job] = {}
        self._job_of: dict[str, int] = {}
        self._names = itertools.count()
        self._rpc("begin", settings.policy.temperature)
        require_tensors(Path(settings.folder), self._rpc("shapes"))
        self._rpc("swap", settings.folder)

    @property
    def ready(self) -> Ready:
        device = torch.cuda.get_device_name() if current_platform.is_cuda_alike() else "cpu"
        model = self._engine.vllm_config.model_config
        name = f"vllm {vllm.__version__}, torch {torch.__version__}, {device}"
        positions = min(model.max_model_len, model.hf_config.max_position_embeddings)  # more where rope is scaled
        return Ready(name, model.get_vocab_size(), positions)

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def generate(self, number: int, seed: bytes, rows: Sequence[tuple[int, Prompt]]) -> None:
        """Begins job `number`: a sample of each prompt, with the noise of its row of the slot."""
        most = self._policy.max_output_tokens
        limits = {"max_tokens": most, "stop_token_ids": sorted(self._policy.eos_ids)}
        self._begin(number, most, [(prompt, limits, {"seed": seed, "row": row}) for row, prompt in rows])

    def prefill(self, number: int, seed: bytes, rows: Sequence[tuple[int, Prompt, Prompt]]) -> None:
        """Begins job `number`: a look at each finished output, all of which is fed but its last token."""
        limits = {"max_tokens": 1}
        self._begin(
            number,
            1,
            [(p + out[:-1], limits, {"seed": seed, "row": row, "output": list(out)}) for row, p, out in rows],
        )

    def _begin(self, number: int, most: int, rows: Sequence[tuple[Prompt, dict[str, Any], dict[str, Any]]]) -> None:
        job = Job([str(next(self._names)) for _ in rows], most)
        for name, (tokens, limits, asked) in zip(job.requests, rows, strict=True):
            params = SamplingParams(
                temperature=0.0,  # of vLLM's own sampler, whose place is taken
                ignore_eos=True,  # the run's EOS ids count, not the model's
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                extra_args={"name": name, **asked},
                **limits,
            )
            self._engine.add_request(name, tokens_input(list(tokens)), params)
        self._jobs[number] = job
        self._job_of |= dict.fromkeys(job.requests, number)

    def abort(self, number: int) -> None:
        """Drops job `number`, if it is still under way."""
        job = self._jobs.pop(number, None)
        if job is not None:
            self._engine.abort_request(job.under_way)
            self._rpc("forget", job.under_way)
            for name in job.under_way:
                del self._job_of[name]

    def step(self) -> Iterator[tuple[int, Job]]:
        """One step of the batch; the jobs that it finished."""
        ended = {output.request_id: output.outputs[0] for output in self._engine.step() if output.finished}
        if not ended:
            return
        asked = [(name, len(output.token_ids)) for name, output in ended.items()]
        for (name, output), found in zip(ended.items(), self._rpc("take", asked), strict=True):
            number = self._job_of.pop(name)
            job = self._jobs[number]
            job.results[name] = self._sample(output, found) if isinstance(found, Proven) else found
            job.tokens += len(output.token_ids)
            if job.finished:
                del self._jobs[number]
                yield number, job

    def _sample(self, output: Any, proven: Proven) -> Sample:
        """Raises: RuntimeError: what was noted is not what vLLM emitted."""
        if tuple(output.token_ids) != proven.ids:
            raise RuntimeError("vLLM emitted other tokens than were sampled")
        finish = FINISH_EOS if proven.ids[-1] in self._policy.eos_ids else FINISH_LENGTH
        return Sample(proven.ids, proven.logprobs, proven.proofs, finish)

    def progress(self) -> Iterator[tuple[int, int, int]]:
        """(job, tokens done, tokens there can be in all) of every job."""
        for number, job in self._jobs.items():
            under_way = job.under_way
            done = job.tokens + sum(min(length, job.most) for length in self._rpc("lengths", under_way))
            yield number, done, job.tokens + job.most * len(under_way)

    # --- Weights

    def swap(self, folder: str) -> None:
        """Other weights of the same shapes, in place, and nothing cached of the old ones. Raises: RuntimeError."""
        self._require_idle()
        self._rpc("swap", folder)
        self._forget_caches()

    def patch(self, changes: Sequence[Change]) -> None:
        """Changed values, in place, and nothing cached of the old ones. Raises: RuntimeError."""
        self._require_idle()
        self._rpc("patch", [(c.name, *_tensors(c)) for c in changes])
        self._forget_caches()

    def digest(self) -> str:
        return str(self._rpc("digest"))

    def _require_idle(self) -> None:
        if self.busy:
            raise RuntimeError("weights cannot change while something is under way with them")

    def _forget_caches(self) -> None:
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM did not drop what it had cached of the old weights")

    def _rpc(self, method: str, *args: Any) -> Any:
        """What the first rank answers."""
        return self._engine.collective_rpc(method, args=args)[0]


def started(settings: Settings) -> LLMEngine:
    """Of a folder of its own that holds the configuration alone: vLLM heeds other files beside one, as sentence models'
    and quantisers' are."""
    with TemporaryDirectory(prefix="vllm-") as own:
        (Path(own) / "config.json").write_bytes(read_config(Path(settings.folder)))
        return LLMEngine.from_engine_args(engine_args(replace(settings, folder=own)))


def engine_args(settings: Settings) -> EngineArgs:
    """How vLLM is asked to run: bfloat16 as it is, no code of the model's folder, nothing sampled but what is asked."""
    return EngineArgs(
        model=settings.folder,
        dtype="bfloat16",
        load_format="dummy",  # a swap follows: what is read first and what later is the same, whatever an index names
        trust_remote_code=False,
        skip_tokenizer_init=True,
        runner="generate",
        generation_config="vllm",
        max_model_len=settings.max_sequence,
        max_num_seqs=settings.batch_rows,
        max_num_batched_tokens=settings.batch_tokens,
        kv_cache_memory_bytes=settings.cache_bytes,
        enable_prefix_caching=settings.prefix_caching,
        block_size=CPU_BLOCK_TOKENS if current_platform.is_cpu() else None,
        tensor_parallel_size=settings.ranks,
        enforce_eager=current_platform.is_cpu(),  # compiling for a CPU takes minutes and gains little
        worker_cls=WORKER,
        disable_log_stats=True,
    )


def _tensors(change: Change) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(change.indices), torch.from_numpy(change.values.view("int16")).view(torch.bfloat16)
