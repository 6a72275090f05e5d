"""Plain vLLM against vLLM with seeded sampling and proofs: runs in pairs, of the same prompts and lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from calibration.generated_slots import silent

from node.engines.base import Prompt
from node.engines.vllm.engine import VllmEngine

from .figures import Spread, costs
from .plain import Plain
from .prompts import Round, draw
from .timing import Runs

PAIRS_PER_GREEDY = 3


@dataclass(slots=True)
class Times:
    """Of each pair of runs, and of greedy runs of plain vLLM now and then; each makes `tokens`."""

    rows: int
    tokens: int
    plain: Runs = field(default_factory=Runs)
    proofs: Runs = field(default_factory=Runs)
    greedy: Runs = field(default_factory=Runs)

    @property
    def cost_percent(self) -> Spread:
        return costs(self.plain.seconds, self.proofs.seconds)

    @property
    def processor_cost_percent(self) -> Spread:
        return costs(self.plain.processor, self.proofs.processor)

    def __str__(self) -> str:
        rates = ", ".join(f"{name} {runs.rate(self.tokens):.1f}" for name, runs in self._sides.items())
        costs = f"cost {self.cost_percent}%, of processor time {self.processor_cost_percent}%"
        return f"{self.rows}: {costs}; tokens/s: {rates}"

    @property
    def _sides(self) -> dict[str, Runs]:
        return {"plain": self.plain, "proofs": self.proofs, "greedy": self.greedy}

    def as_json(self) -> dict[str, float]:
        """What proofs cost, and tokens a second."""
        found: dict[str, float] = {"pairs": len(self.plain.seconds)}
        for name, cost in (("cost", self.cost_percent), ("processor_cost", self.processor_cost_percent)):
            parts = {"": cost.median, "_low": cost.low, "_high": cost.high}
            found |= {f"{name}_percent{part}": round(value, 2) for part, value in parts.items()}
        for name, runs in self._sides.items():
            found[f"{name}_tokens_per_second"] = round(runs.rate(self.tokens), 1)
        return found


def race(plain: Plain, engine: VllmEngine, times: Times, pairs: int, pool: Sequence[Prompt]) -> Iterator[None]:
    """Adds pairs to `times`, and stops after each. Who begins changes from pair to pair, which cancels what drifts."""
    for _ in range(pairs):
        number = len(times.plain.seconds)
        here = draw(f"race {times.rows} {number}", times.rows, pool)
        sides = [(times.plain, partial(_plain, plain, here, 1.0)), (times.proofs, partial(_proofs, engine, here))]
        for runs, run in sides if number % 2 == 0 else reversed(sides):
            _note(runs, run, times.tokens)
        if number % PAIRS_PER_GREEDY == 0:
            _note(times.greedy, partial(_plain, plain, here, 0.0), times.tokens)
        yield


def _note(runs: Runs, run: Callable[[], int], tokens: int) -> None:
    """Raises: RuntimeError: it made another number of tokens, so that the sides cannot be compared."""
    made = runs.take(run)
    if made != tokens:
        raise RuntimeError(f"{made} tokens were made, not {tokens}")


def _plain(plain: Plain, here: Round, temperature: float) -> int:
    return sum(len(ids) for ids in plain.generate(here.prompts, temperature))


def _proofs(engine: VllmEngine, here: Round) -> int:
    return sum(len(sample.output_ids) for sample in engine.generate(here.seed, here.prompts, silent))
