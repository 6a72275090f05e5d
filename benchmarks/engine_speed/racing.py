"""Plain vLLM against vLLM with seeded sampling and proofs: runs in pairs, of the same prompts and lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from calibration.generated_slots import silent

from node.engines.vllm.engine import VllmEngine
from node.engines.vllm.messages import Prompt

from .figures import Spread, costs
from .plain import Plain
from .prompts import Round, draw
from .timing import rate, timed

PAIRS_PER_GREEDY = 3


@dataclass(slots=True)
class Times:
    """Seconds of each pair of runs, and of greedy runs of plain vLLM now and then; each makes `tokens`."""

    rows: int
    tokens: int
    plain: list[float] = field(default_factory=list)
    proofs: list[float] = field(default_factory=list)
    greedy: list[float] = field(default_factory=list)

    @property
    def cost_percent(self) -> Spread:
        return costs(self.plain, self.proofs)

    def __str__(self) -> str:
        runs = {"plain": self.plain, "with proofs": self.proofs, "greedy": self.greedy}
        rates = ", ".join(f"{name} {rate(self.tokens, seconds):.1f}" for name, seconds in runs.items())
        return f"{self.rows}: cost {self.cost_percent}%; tokens/s: {rates}"

    def as_json(self) -> dict[str, float]:
        """Tokens a second, and what proofs cost."""
        runs = {"plain": self.plain, "proofs": self.proofs, "greedy": self.greedy}
        rates = {f"{name}_tokens_per_second": round(rate(self.tokens, seconds), 1) for name, seconds in runs.items()}
        cost = self.cost_percent
        quartiles = {"cost_percent_low": round(cost.low, 2), "cost_percent_high": round(cost.high, 2)}
        return {**rates, "pairs": len(self.plain), "cost_percent": round(cost.median, 2), **quartiles}


def race(plain: Plain, engine: VllmEngine, rows: int, pairs: int, pool: Sequence[Prompt]) -> Iterator[Times]:
    """The times so far, after every pair. Who begins changes from pair to pair, which cancels what drifts."""
    times = Times(rows, rows * plain.tokens)
    for number in range(pairs):
        here = draw(f"race {rows} {number}", rows, pool)
        runs = [
            (times.plain, partial(_plain, plain, here, 1.0)),
            (times.proofs, partial(_proofs, engine, here)),
        ]
        for seconds, run in runs if number % 2 == 0 else reversed(runs):
            _note(seconds, run, times.tokens)
        if number % PAIRS_PER_GREEDY == 0:
            _note(times.greedy, partial(_plain, plain, here, 0.0), times.tokens)
        yield times


def _note(into: list[float], run: Callable[[], int], tokens: int) -> None:
    """Raises: RuntimeError: it made another number of tokens, so that the sides cannot be compared."""
    seconds, made = timed(run)
    if made != tokens:
        raise RuntimeError(f"{made} tokens were made, not {tokens}")
    into.append(seconds)


def _plain(plain: Plain, here: Round, temperature: float) -> int:
    return sum(len(ids) for ids in plain.generate(here.prompts, temperature))


def _proofs(engine: VllmEngine, here: Round) -> int:
    return sum(len(sample.output_ids) for sample in engine.generate(here.seed, here.prompts, silent))
