"""What takes the sampler's place in vLLM's workers: tokens chosen by the run's noise, and what proves them noted.

A row of a step belongs to the request that vLLM's batch has at that place, and to the output position that follows from
how long its sequence is: so it holds whatever was batched, chunked, cached, preempted or computed again. Rows of a
sequence that is not complete yet are dropped, as vLLM drops them.

Letters: B rows, N tokens that were computed, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from vllm.v1.outputs import SamplerOutput

from hashing.sampling import key_of, places
from node.engines.scoring import Choice, TokenScores, choose_unchecked, weigh_states
from node.engines.vllm.traces import Proven, Recheck, Trace
from node.rollouts.rollout import Replay

IN_FLIGHT = 8  # steps whose copies from the device may be on their way


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Of one step, copied or being copied from the device: the rows that count, and where they belong."""

    traces: list[Trace]
    positions: list[int]
    rows: list[int]
    tokens_B: torch.Tensor  # noqa: N815
    logprobs_B: torch.Tensor  # noqa: N815
    states_BH: torch.Tensor  # noqa: N815
    arrived: Any

    def note(self) -> None:
        if self.arrived is not None:
            self.arrived.synchronize()
        tokens, logprobs = self.tokens_B.tolist(), self.logprobs_B.tolist()
        states_BH = self.states_BH.view(torch.int16).numpy().view(np.uint16)
        for trace, position, row in zip(self.traces, self.positions, self.rows, strict=True):
            trace.note(position, tokens[row], logprobs[row], states_BH[row])


class SeededSampler(torch.nn.Module):
    """Stands in for `runner.sampler`. One choice for the whole batch, whatever slots its rows come from."""

    def __init__(self, runner: Any, temperature: float, notes: bool) -> None:
        """`notes`: whether this rank keeps what is sampled; all ranks of a tensor-parallel group sample the same."""
        super().__init__()
        self._runner = runner
        self._temperature = temperature
        self._notes = notes
        self._under_way: dict[str, Trace | Recheck] = {}
        self._steps: deque[_Step] = deque()
        self._hidden_NH = torch.empty(0)

    def watch(self, model_forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """`model_forward`, its hidden states (N, H) kept until their step is sampled."""

        def watched(*args: Any, **kwargs: Any) -> torch.Tensor:
            self._hidden_NH = model_forward(*args, **kwargs)
            return self._hidden_NH

        return watched

    def forward(self, logits: torch.Tensor, sampling_metadata: Any) -> SamplerOutput:
        """A token of every row of `logits` (B, V)."""
        runner = self._runner
        count = runner.input_batch.num_reqs
        requests = [self._request(name) for name in runner.input_batch.req_ids[:count]]
        lengths = runner.optimistic_seq_lens_cpu[:count].tolist()  # exact without speculative decoding
        positions = [length - request.prompt_length for length, request in zip(lengths, requests, strict=True)]
        drawn = [max(position, 0) for position in positions]  # of a prompt that is not complete: drawn, and dropped
        places_B4 = places([r.key for r in requests], [r.row for r in requests], drawn)
        choice = choose_unchecked(logits, places_B4, self._temperature)
        self._recheck(requests, lengths)
        if self._notes:
            dropped = runner.discard_request_mask.np[:count]
            rows = [b for b in range(count) if isinstance(requests[b], Trace) and not dropped[b]]
            self._keep(requests, positions, rows, choice)
        return SamplerOutput(choice.tokens.to(torch.int32)[:, None], None)

    def _request(self, name: str) -> Trace | Recheck:
        """Under our own name of the request; vLLM's workers know it by another."""
        state = self._runner.requests[name]
        asked = state.sampling_params.extra_args
        found = self._under_way.get(asked["name"])
        if found is None:
            output = asked.get("output")
            length, key, row = state.num_prompt_tokens, key_of(asked["seed"]), asked["row"]
            if output is None:
                found = Trace(key, row, length)
            else:
                found = Recheck(key, row, length - len(output) + 1, tuple(output))
            self._under_way[asked["name"]] = found
        return found

    def _recheck(self, requests: list[Trace | Recheck], lengths: list[int]) -> None:
        """Shows those that are replayed what was computed of them in this step."""
        starts = self._runner.query_start_loc.np
        parts = [
            (request, request.unseen(lengths[b], self._hidden_NH[starts[b] : starts[b + 1]]))
            for b, request in enumerate(requests)
            if isinstance(request, Recheck)
        ]
        parts = [(request, states_TH) for request, states_TH in parts if len(states_TH)]
        if not parts:
            return
        shown = [(request, t) for request, states_TH in parts for t in request.next_positions(len(states_TH))]
        places_N4 = places([r.key for r, _ in shown], [r.row for r, _ in shown], [t for _, t in shown])
        states_NH = torch.cat([states_TH for _, states_TH in parts])
        logits_of = self._runner.model.compute_logits
        scores = weigh_states(states_NH, logits_of, places_N4, [r.output[t] for r, t in shown], self._temperature)
        ends = np.cumsum([len(states_TH) for _, states_TH in parts])
        for (request, states_TH), end in zip(parts, ends.tolist(), strict=True):
            request.note(states_TH, TokenScores(*(column[end - len(states_TH) : end] for column in scores)))

    def _keep(self, requests: list[Trace | Recheck], positions: list[int], rows: list[int], choice: Choice) -> None:
        traces = [request for request in (requests[b] for b in rows) if isinstance(request, Trace)]
        last_B = self._runner.query_start_loc.gpu[1 : len(requests) + 1] - 1
        states_BH = self._hidden_NH[last_B]
        tokens_B, logprobs_B, states_BH = map(_to_host, (choice.tokens, choice.logprobs, states_BH))
        arrived = _arrival(last_B.device)
        self._steps.append(_Step(traces, [positions[b] for b in rows], rows, tokens_B, logprobs_B, states_BH, arrived))
        while len(self._steps) > (IN_FLIGHT if arrived is not None else 0):
            self._steps.popleft().note()

    def take(self, finished: list[tuple[str, int]]) -> list[Proven | Replay]:
        """What is known of finished requests, which are forgotten here; nothing where nothing is kept.

        `finished`: (name, tokens that vLLM emitted) each.
        """
        while self._steps:
            self._steps.popleft().note()
        requests = [(self._under_way.pop(name), emitted) for name, emitted in finished]
        return [request.result(emitted) for request, emitted in requests] if self._notes else []

    def forget(self, names: list[str]) -> None:
        """Drops requests that nobody wants any more."""
        for name in names:
            self._under_way.pop(name, None)

    def lengths(self, names: list[str]) -> list[int]:
        """Tokens that are noted of each, a few steps late."""
        return [self._under_way[name].length if name in self._under_way else 0 for name in names]


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU; from a GPU it is on its way until the step's event has passed."""
    if tensor.device.type == "cpu":
        return tensor.clone()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


def _arrival(device: torch.device) -> Any:
    if device.type == "cpu":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event
