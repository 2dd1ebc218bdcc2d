"""A picture of the results of peers.py."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from bench.peers.report import Row

_COLORS = {
    "sok": "#1b6ca8",
    "sok_other": "#0f3d63",
    "sok_lazy": "#5b9bd5",
    "tensorflow": "#e9a03b",
    "tfra": "#c8553d",
    "torch": "#7a5195",
    "fbgemm": "#3b8b5c",
    "engine": "#8fb8d8",
    "engine_other": "#6f8799",
}
_LABELS = {
    "sok": "this library",
    "sok_other": "another checkout",
    "sok_lazy": "with LazyAdam",
    "engine": "its engine alone",
    "engine_other": "the other's engine",
}


def write(path: pathlib.Path, rows: Sequence[Row]) -> None:
    """Draws milliseconds per call on a logarithmic axis, in a panel for each kind of call and optimizer."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        panels.setdefault((row.what, row.tables.optimizer), []).append(row)
    columns = 1 if len(panels) == 1 else 2
    lines = -(-len(panels) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(6 * columns, 3.2 * lines), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, ((what, optimizer), shown) in zip(grid.flat, panels.items()):
        _draw(axes, shown)
        axes.set_title(what if what == "forward" else f"{what}, {optimizer}", fontsize=10)
    names = [name for name in _COLORS if any(name == entry.name for row in rows for entry in row.entries)]
    handles = [plt.Rectangle((0, 0), 1, 1, color=_COLORS[name]) for name in names]
    handles.append(plt.Line2D([], [], color="black"))
    labels = [_LABELS.get(name, name) for name in names] + ["the same bytes copied"]
    figure.legend(handles, labels, loc="upper center", ncol=len(labels), frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw(axes: object, rows: Sequence[Row]) -> None:
    for place, row in enumerate(rows):
        width = 0.8 / len(row.entries)
        for number, entry in enumerate(row.entries):
            at = place - 0.4 + width * (number + 0.5)
            bar = axes.bar(at, entry.timing.median, width * 0.95, color=_COLORS[entry.name])
            axes.bar_label(bar, [_milliseconds(entry.timing.median)], fontsize=6)
        axes.hlines(row.copy_ms, place - 0.4, place + 0.4, color="black", linewidth=1)
    axes.set_xticks(range(len(rows)), [_question(row) for row in rows], fontsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("ms per call", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _milliseconds(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _question(row: Row) -> str:
    ids = "1 id" if row.bags.hotness == 1 else f"{row.bags.hotness} ids"
    return f"dim {row.tables.dim}\n{ids} per bag\n{row.bags.batch} bags, {row.threads} thr."
