"""What a run shows and writes: a progress bar, TensorBoard events, results.json, curves.png, a table."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any, TextIO

import numpy as np
import tensorflow as tf
import tqdm

from ctr.bad_lines import BadLines
from ctr.history import History

# Seconds between updates of the bar on a terminal, and between lines in a log file.
_TERMINAL_INTERVAL_S = 0.2
_LOG_INTERVAL_S = 10.0
# Weight of the newest loss in the displayed moving average.
_SMOOTHING = 0.02
# Approximate number of points of the smoothed loss curve.
_POINTS = 400
# Steps between two training losses in the event file.
_LOSS_INTERVAL = 20


class Progress:
    """A progress bar over the samples of all epochs. A context manager that closes the bar."""

    def __init__(self, total_samples: int, stream: TextIO = sys.stderr, shown: bool = True) -> None:
        """`total_samples` may be an estimate. If not `shown`, nothing is printed."""
        interval = _TERMINAL_INTERVAL_S if stream.isatty() else _LOG_INTERVAL_S
        self._stream, self._shown = stream, shown
        self._loss = None
        self._hits, self._misses, self._memory = 0, 0, ""
        self._bar = tqdm.tqdm(
            total=total_samples,
            unit=" samples",
            unit_scale=True,
            mininterval=interval,
            file=stream,
            disable=not shown,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def advance(self, samples: int, loss: float, epoch: int) -> None:
        """Adds a step of `samples` with mean loss `loss`."""
        self._loss = loss if self._loss is None else self._loss + _SMOOTHING * (loss - self._loss)
        if self._bar.n + samples > self._bar.total:
            self._bar.total = self._bar.n + samples
        self._bar.set_postfix_str(f"epoch {epoch}, loss {self._loss:.4f}{self._memory}", refresh=False)
        self._bar.update(samples)

    def show_memory(self, hits: int = 0, misses: int = 0) -> None:
        """Shows how many of the rows that a step needed were in memory; both numbers are sums over steps."""
        needed = hits - self._hits + misses - self._misses
        if needed > 0:
            self._memory = f", {(hits - self._hits) / needed:.1%} in memory"
        self._hits, self._misses = hits, misses

    def say(self, message: str) -> None:
        """Prints a line above the bar."""
        if self._shown:
            self._bar.write(message, file=self._stream)


class TensorBoard:
    """Writes scalars of a growing history. A context manager that flushes events at the end."""

    def __init__(self, directory: str) -> None:
        self._writer = tf.compat.v1.summary.FileWriter(directory)
        self._evaluations = 0

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()

    def update(self, history: History) -> None:
        """Writes what is new since the last call."""
        if len(history.evaluations) > self._evaluations:
            self._evaluations = len(history.evaluations)
            last = history.evaluations[-1]
            self._add(last.step, {"held_out/auc": last.auc, "held_out/log_loss": last.log_loss})
        elif history.losses and history.losses[-1].step % _LOSS_INTERVAL == 1:
            last = history.losses[-1]
            self._add(
                last.step,
                {"training/loss": last.loss, "training/samples_per_second": history.samples_per_second},
            )

    def _add(self, step: int, scalars: dict[str, float]) -> None:
        values = [tf.compat.v1.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._writer.add_summary(tf.compat.v1.Summary(value=values), step)


def write_results(
    history: History, bad_lines: BadLines, run: dict[str, Any], flags: dict[str, Any], directory: str
) -> None:
    """Writes results.json and curves.png; `run` names data set, model, tables and optimizer."""
    evaluations = [
        {key: _finite(value) for key, value in vars(evaluation).items()} for evaluation in history.evaluations
    ]
    results = {
        **run,
        "flags": flags,
        "steps": len(history.losses),
        "samples": history.samples,
        "samples_per_second": round(history.samples_per_second, 1),
        "seconds": round(history.seconds, 2),
        "interrupted": history.interrupted,
        "rows_by_server": history.rows_by_server,
        "last_training_loss": history.losses[-1].loss if history.losses else None,
        "evaluations": evaluations,
        "best_reachable": history.best and {"auc": history.best[0], "log_loss": history.best[1]},
        "malformed_lines": [
            {"file": path, "line": number, "reason": reason} for path, number, reason in bad_lines.entries()
        ],
    }
    with open(os.path.join(directory, "results.json"), "w", encoding="utf-8") as stream:
        json.dump(results, stream, indent=2)
        stream.write("\n")
    plot_curves(
        history, " · ".join(str(value) for value in run.values()), os.path.join(directory, "curves.png")
    )


def _finite(value: float) -> float | None:
    """None for NaN, which JSON does not have. The AUC is NaN if there is only one class."""
    return value if math.isfinite(value) else None


def final_table(history: History, run: dict[str, Any]) -> str:
    """The run in two rows: names and values."""
    last = history.evaluations[-1] if history.evaluations else None
    cells = {key: str(value) for key, value in run.items()}
    cells["epochs"] = str(history.epoch)
    cells["samples/s"] = f"{history.samples_per_second:,.0f}"
    cells["AUC"] = f"{last.auc:.4f}" if last else "-"
    cells["log-loss"] = f"{last.log_loss:.4f}" if last else "-"
    if history.best is not None:
        cells["best AUC"], cells["best log-loss"] = (f"{value:.4f}" for value in history.best)
    cells["seconds"] = f"{history.seconds:.1f}"
    return _aligned([list(cells), list(cells.values())])


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    )


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Means of consecutive groups, about _POINTS of them."""
    group = max(1, len(values) // _POINTS)
    whole = len(values) // group * group
    return values[:whole].reshape(-1, group).mean(axis=1)


def plot_curves(history: History, title: str, path: str) -> None:
    """Writes a PNG to `path`."""
    # Without pyplot, which takes longer to import, and looks for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.5))
    loss_axes, auc_axes, log_loss_axes = figure.subplots(1, 3)
    steps = np.array([(entry.seconds, entry.loss) for entry in history.losses]).reshape(-1, 2)
    loss_axes.plot(_smoothed(steps[:, 0]), _smoothed(steps[:, 1]))
    loss_axes.set_ylabel("training loss")
    seconds = [entry.seconds for entry in history.evaluations]
    auc_axes.plot(seconds, [entry.auc for entry in history.evaluations], marker="o", label="reached")
    auc_axes.set_ylabel("held-out AUC")
    log_loss_axes.plot(
        seconds, [entry.log_loss for entry in history.evaluations], marker="o", label="reached"
    )
    log_loss_axes.set_ylabel("held-out log-loss")
    if history.best is not None:
        for axes, value in zip((auc_axes, log_loss_axes), history.best):
            axes.axhline(value, linestyle="--", color="gray", label="best reachable")
            axes.legend()
    for axes in (loss_axes, auc_axes, log_loss_axes):
        axes.set_xlabel("seconds")
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
