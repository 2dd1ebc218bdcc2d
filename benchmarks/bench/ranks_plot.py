"""A picture of the results of lookups_over_ranks.py."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from bench.ranks_report import Row

_LABELS = {"sok": "this library", "plain": "hvd.alltoall per feature", "unique": "the same, after tf.unique"}
_COLORS = {"sok": "#1b6ca8", "plain": "#c8553d", "unique": "#e9a03b"}


def write(path: pathlib.Path, rows: Sequence[Row]) -> None:
    """Draws milliseconds per step on a logarithmic axis, with a group of bars for each launch."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 4))
    for position, kind in enumerate(_LABELS):
        times = [row.timings[f"{kind} step"].median for row in rows]
        places = [number + 0.27 * (position - 1) for number in range(len(rows))]
        bars = axes.bar(places, times, 0.25, label=_LABELS[kind], color=_COLORS[kind])
        axes.bar_label(bars, fmt="%.0f", fontsize=7)
    axes.set_xticks(range(len(rows)), [_launch(row) for row in rows], fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("ms per training step")
    axes.set_title(f"{rows[0].features} features, rows of {rows[0].dim} floats")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _launch(row: Row) -> str:
    ranks = "1 rank" if row.ranks == 1 else f"{row.ranks} ranks"
    return f"{row.transport}, {ranks}\ncycle {row.cycle_time:g} ms"
