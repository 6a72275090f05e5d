"""The arithmetic of the measurements: paired costs and their spread, shares of agreement, bytes a token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

PAPER_BYTES_PER_TOKEN = 258 / 32  # TOPLOC, arXiv 2501.16007: 258 bytes for 32 tokens


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of a figure that was measured several times."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


def spread(values: Iterable[float]) -> Spread:
    """Quartiles lie between values where they must, in proportion."""
    low, median, high = np.percentile(list(values), (25, 50, 75)).tolist()
    return Spread(median, low, high)


def costs(plain_seconds: Sequence[float], our_seconds: Sequence[float]) -> Spread:
    """Percent of tokens a second that are lost; of runs in pairs that made the same number of tokens."""
    return spread(100 * (1 - plain / ours) for plain, ours in zip(plain_seconds, our_seconds, strict=True))


def ratios(over: Sequence[float], under: Sequence[float]) -> Spread:
    """Of runs in pairs."""
    return spread(a / b for a, b in zip(over, under, strict=True))


def equal_until(a: Sequence[int], b: Sequence[int]) -> tuple[int, int]:
    """(equal tokens up to the first difference, tokens compared: that difference too, if there is one)."""
    shortest = min(len(a), len(b))
    equal = next((t for t in range(shortest) if a[t] != b[t]), shortest)
    return equal, equal + (equal < max(len(a), len(b)))


def agreeing_share(pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> float:
    """Of the tokens that two engines sampled after the same tokens, how many are the same."""
    counts = [equal_until(a, b) for a, b in pairs]
    return sum(equal for equal, _ in counts) / sum(compared for _, compared in counts)
