"""The curves of a series as one SVG: every seed, their mean, and one standard deviation over seeds around it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .results import Result
from .series import CONTROL, LEARNING, Series

COLOURS = {LEARNING: "#0b6bcb", CONTROL: "#8a8f98"}
LABELS = {LEARNING: "reward of the task", CONTROL: "control: rewards by lot"}

Floats = npt.NDArray[np.float64]


def plot(series: Series, found: Sequence[Result], path: Path) -> None:
    """Writes `path`. The same results give the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "intellect-node", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for arm in series.arms:
        _draw(axes, arm, [one for one in found if one.arm == arm])
    held_out = any(one.held_out for one in found)
    axes.set_xlabel("version of the weights (optimiser steps)")
    axes.set_ylabel("held-out accuracy, %" if held_out else "mean reward of accepted rollouts, %")
    axes.set_title(f"{series.model}, trained by the network of processes", fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def curve(one: Result) -> tuple[Floats, Floats, Floats]:
    """(versions, values in percent, their standard errors): held-out accuracies, else mean rewards by version."""
    if one.held_out:
        points = [(version, at.mean, at.standard_error) for version, at in sorted(one.held_out.items())]
    else:
        points = [(v, float(np.mean(g)), float(np.std(g) / np.sqrt(len(g)))) for v, g in enumerate(one.groups) if g]
    table = np.array(points)
    return table[:, 0], 100 * table[:, 1], 100 * table[:, 2]


def _draw(axes: "matplotlib.axes.Axes", arm: str, found: Sequence[Result]) -> None:  # type: ignore[name-defined]  # noqa: F821
    if not found:
        return
    curves = [curve(one) for one in found]
    for versions, values, errors in curves:
        axes.errorbar(versions, values, errors, color=COLOURS[arm], alpha=0.35, linewidth=0.8, elinewidth=0.6)
    shared = sorted(set.intersection(*(set(versions.tolist()) for versions, _, _ in curves)))
    table = np.array([[values[versions == at][0] for at in shared] for versions, values, _ in curves])
    mean, spread = table.mean(axis=0), table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(len(shared))
    axes.fill_between(shared, mean - spread, mean + spread, color=COLOURS[arm], alpha=0.15, linewidth=0)
    axes.plot(shared, mean, color=COLOURS[arm], linewidth=2, label=f"{LABELS[arm]} ({len(table)} seeds)")
