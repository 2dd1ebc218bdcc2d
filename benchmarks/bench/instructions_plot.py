"""A picture of the instructions of each part of a step."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

from bench.callgrind import Counts

_BEFORE, _NOW = "#e9a03b", "#1b6ca8"


def write(
    path: pathlib.Path,
    now: Sequence[tuple[str, Mapping[str, Counts]]],
    before: Sequence[Mapping[str, Counts] | None],
) -> None:
    """Draws a panel for each kind of bags, with a bar for each part.

    Args:
      path: .png or .svg.
      now: For each kind of bags, its title and the counts by part.
      before: For each kind of bags, earlier counts to compare with, or None.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(1, len(now), figsize=(5 * len(now), 3.4), squeeze=False, sharex=True)
    for axes, (title, parts), earlier in zip(grid.flat, now, before):
        names = list(parts)
        sides = [("before", _BEFORE, earlier), ("now", _NOW, parts)] if earlier else [("now", _NOW, parts)]
        height = 0.8 / len(sides)
        for number, (label, color, counts) in enumerate(sides):
            values = [counts[name].instructions if name in counts else 0.0 for name in names]
            places = [place - 0.4 + height * (number + 0.5) for place in range(len(names))]
            bars = axes.barh(places, values, height * 0.92, color=color, label=label)
            axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=2)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("instructions per id", fontsize=8)
        axes.margins(x=0.12)
        axes.spines[["top", "right"]].set_visible(False)
        if earlier:
            axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
