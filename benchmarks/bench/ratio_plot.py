"""A picture of goals: each ratio divided by its least value."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from bench.goal import Goal

_REACHED, _MISSED = "#1b6ca8", "#c8553d"


def write(path: pathlib.Path, goals: Sequence[Goal]) -> None:
    """Draws a bar for each goal, from a line at 1, on a logarithmic axis, and labels it with the ratio."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 1 + 0.2 * len(goals)))
    shown = [goal.ratio / goal.least for goal in goals]
    places = range(len(goals))
    colors = [_REACHED if goal.verdict() == "reached" else _MISSED for goal in goals]
    bars = axes.barh(places, [value - 1 for value in shown], left=1, color=colors)
    axes.bar_label(bars, [f"{goal.ratio:.2f} of {goal.least:.3g}" for goal in goals], fontsize=6, padding=2)
    axes.set_yticks(places, [f"{goal.question} / {goal.beside}" for goal in goals], fontsize=6)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(min([0.5, *shown]) * 0.8, max([2, *shown]) * 2)
    axes.set_ylim(len(goals) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if value < 10 else "")
    axes.tick_params(axis="x", which="both", labelsize=7)
    axes.set_xlabel("ratio divided by its least value", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    # "tight" makes the picture large enough for all labels.
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
