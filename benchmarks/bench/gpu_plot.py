"""A picture of what engine_benchmark measured: shares of the copy bandwidth by dim."""

from __future__ import annotations

import pathlib

from bench.gpu_results import GpuResults

_COLORS = {
    "find rows": "#7a5195",
    "gather": "#5b9bd5",
    "pool": "#1b6ca8",
    "lookup": "#8fb8d8",
    "update": "#e9a03b",
    "backward": "#c8553d",
}
_STYLES = {"": "-", "lazy_adam": "-", "adam": "--", "adagrad": ":"}


def write(path: pathlib.Path, results: GpuResults) -> None:
    """Draws a panel for each distribution of ids, with a line for each kernel or call."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = results.distributions()
    figure, grid = plt.subplots(1, len(drawn), figsize=(6.5 * len(drawn), 4.6), squeeze=False, sharey=True)
    for axes, name in zip(grid.flat, drawn):
        for line in results.lines(name):
            if line.what not in _COLORS or line.optimizer not in _STYLES:
                continue
            dims = sorted(line.points)
            axes.plot(
                dims,
                [100 * line.points[dim].share_of_copy for dim in dims],
                _STYLES[line.optimizer],
                color=_COLORS[line.what],
                marker="o" if line.ids_per_bag else ".",
                markersize=4,
                linewidth=1.2,
                label=line.name,
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_title(f"{name} ids", fontsize=10)
        axes.set_xlabel("floats of a row", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    grid[0, 0].set_ylabel("% of the bandwidth of a copy", fontsize=8)
    grid[0, -1].legend(fontsize=6, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(results.title, fontsize=10)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
