"""The results of a run: TensorBoard events, results.json, curves.png and the final table."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import tensorflow as tf

from ctr.bad_lines import BadLines
from ctr.history import History
from ctr.plotting import plot_curves

# Steps between two training losses in the event file.
_LOSS_INTERVAL = 20


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
