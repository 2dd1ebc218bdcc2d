"""Pictures of results."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import Mapping

from bench import report

# Panel, group of bars, contender: value.
Panels = Mapping[str, Mapping[str, Mapping[str, float]]]

_REACHED, _MISSED = "#1b6ca8", "#c8553d"
_COLORS = ("#1b6ca8", "#e9a03b", "#c8553d", "#7a5195", "#3b8b5c", "#8fb8d8", "#6f8799", "#5b9bd5", "#0f3d63")


@contextlib.contextmanager
def _figure(
    path: pathlib.Path, lines: int, columns: int, size: tuple[float, float], share_y: bool = True
) -> Iterator[tuple]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image  # matplotlib needs it too

    figsize = (size[0] * columns, size[1] * lines)
    figure, grid = plt.subplots(
        lines, columns, figsize=figsize, squeeze=False, sharey=share_y and columns > 2
    )
    yield figure, grid
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
    # "tight" makes the picture large enough for all labels.
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
    if path.suffix == ".png":
        # A palette holds the colors of a plot in a third of the bytes.
        image = Image.open(path).convert("RGB").quantize(64)
        image.save(path, optimize=True)


def panels_of(results: Sequence[report.Result], by: Sequence[str]) -> Panels:
    """Medians, with a panel for each combination of what was measured by the names in `by`."""
    values = {key: {str(result.question.get(key)) for result in results} for key in results[0].question}
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for result in results:
        panel = ", ".join(str(result.question[key]) for key in by)
        varied = [key for key in values if key not in by and len(values[key]) > 1]
        group = "\n".join(f"{key} {report.text_of(result.question[key])}" for key in varied)
        medians = {name: timing.median for name, timing in result.timings.items()}
        panels.setdefault(panel, {}).setdefault(group, {}).update(medians)
    return panels


def bars(path: pathlib.Path, panels: Panels, unit: str) -> None:
    """Draws values on a logarithmic axis: a panel for each title, and a bar for each contender of a group."""
    from matplotlib import patches

    columns = min(2, len(panels))
    names = list(dict.fromkeys(name for groups in panels.values() for bar in groups.values() for name in bar))
    colors = {name: _COLORS[number % len(_COLORS)] for number, name in enumerate(names)}
    with _figure(path, -(-len(panels) // columns), columns, (6, 3.4)) as (figure, grid):
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, (title, groups) in zip(grid.flat, panels.items()):
            for place, bar in enumerate(groups.values()):
                width = 0.8 / len(bar)
                for number, (name, value) in enumerate(bar.items()):
                    at = place - 0.4 + width * (number + 0.5)
                    drawn = axes.bar(at, value, width * 0.95, color=colors[name])
                    axes.bar_label(drawn, [f"{value:.0f}" if value >= 100 else f"{value:.3g}"], fontsize=6)
            axes.set_xticks(range(len(groups)))
            axes.set_xticklabels(list(groups), fontsize=7)
            axes.set_yscale("log")
            axes.set_ylabel(unit, fontsize=8)
            axes.set_title(title, fontsize=10)
        handles = [patches.Patch(color=colors[name]) for name in names]
        figure.tight_layout(rect=(0, 0, 1, 0.95))
        figure.legend(handles, names, loc="upper center", ncol=min(5, len(names)), frameon=False, fontsize=8)


def goals(path: pathlib.Path, results: Sequence[report.Result]) -> None:
    """Draws each goal's ratio divided by its least value, from a line at 1, on a logarithmic axis."""
    drawn = [(result, goal, result.ratio(goal.beside)) for result in results for goal in result.goals]
    with _figure(path, 1, 1, (9, 1 + 0.2 * len(drawn))) as (_, grid):
        axes, places = grid[0, 0], range(len(drawn))
        shown = [ratio / goal.least for _, goal, ratio in drawn]
        colors = [_REACHED if value >= 1 else _MISSED for value in shown]
        drawn_bars = axes.barh(places, [value - 1 for value in shown], left=1, color=colors)
        labels = [f"{ratio:.2f} of {goal.least:.3g}" for _, goal, ratio in drawn]
        axes.bar_label(drawn_bars, labels, fontsize=6, padding=2)
        axes.set_yticks(places)
        axes.set_yticklabels(
            [f"{report.title(result)} / {goal.beside}" for result, goal, _ in drawn], fontsize=6
        )
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlim(min([0.5, *shown]) * 0.8, max([2, *shown]) * 2)
        axes.set_ylim(len(drawn) - 0.4, -0.6)
        axes.set_xlabel("ratio divided by its least value", fontsize=8)


def _in_binary(value: float) -> str:
    """A number with K for 1024 and M for 1024 of those."""
    for size, unit in ((1 << 20, "M"), (1 << 10, "K")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def lines(
    path: pathlib.Path, title: str, panels: Mapping[str, Mapping[str, Mapping[int, float]]], x: str, y: str
) -> None:
    """Draws a panel for each key of `panels`, with a line of y over powers of two for each name.

    If y is empty, each panel's key says what it shows, on a logarithmic axis.
    """
    with _figure(path, 1, len(panels), (6.5, 4.6) if y else (3.4, 3), share_y=bool(y)) as (figure, grid):
        for axes, (panel, drawn) in zip(grid.flat, panels.items()):
            for number, (name, values) in enumerate(drawn.items()):
                style = ("-", "--", ":")[number // len(_COLORS) % 3]
                color = _COLORS[number % len(_COLORS)]
                axes.plot(*zip(*sorted(values.items())), style, color=color, marker=".", label=name)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: _in_binary(value))
            axes.set_title(panel, fontsize=10)
            axes.set_xlabel(x, fontsize=8)
            axes.tick_params(labelsize=8)
            if y:
                axes.set_ylim(bottom=0)
            else:
                axes.set_yscale("log")
        grid[0, 0].set_ylabel(y, fontsize=8)
        grid[0, -1].legend(fontsize=6, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.suptitle(title, fontsize=10)


def points(
    path: pathlib.Path, panels: Mapping[str, Mapping[str, tuple[float, float, float]]], x: str, y: str
) -> None:
    """Draws a panel for each key of `panels`, with a point (x, y, error of y) for each name.

    Points with the same x are side by side.
    """
    with _figure(path, 1, len(panels), (3.2, 3.2)) as (figure, grid):
        for axes, (panel, drawn) in zip(grid.flat, panels.items()):
            axes.axhline(0, color="black", linewidth=0.5)
            taken: dict[float, int] = {}
            for number, (name, (at, value, error)) in enumerate(drawn.items()):
                taken[at] = taken.get(at, 0) + 1
                beside = at * (1 + 0.06 * (taken[at] - 1))
                axes.errorbar(beside, value, error, color=_COLORS[number], fmt="o", capsize=3, label=name)
            axes.set_title(panel, fontsize=10)
            axes.set_xlabel(x, fontsize=8)
            axes.tick_params(labelsize=8)
            axes.set_xlim(left=0)
        grid[0, 0].set_ylabel(y, fontsize=8)
        grid[0, -1].legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
