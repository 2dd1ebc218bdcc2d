"""Held-out AUC of examples/train_ctr.py with rows and slots in fewer bytes.

Flags that are unknown here are passed to train_ctr.py.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import numpy as np

from bench import flags, plots, processes, report
from bench.report import Result
from workloads.row_types import bytes_of

# The flags of train_ctr.py. The first kind is what others are compared with.
_SIXTEEN = ("--row_dtype", "bfloat16", "--slot_dtype", "bfloat16")
_KINDS = {
    "float32": (),
    "bfloat16": _SIXTEEN,
    "bfloat16 to nearest": (*_SIXTEEN, "--rounding", "nearest"),
    "bfloat16, row moment": (*_SIXTEEN, "--second_moment", "row"),
    "float16 rows": ("--row_dtype", "float16", "--slot_dtype", "bfloat16"),
}
# Criteo's files are taken to be a sample of a thousand lines, which one epoch of large batches would not use.
_DATASETS = {
    "movielens": (),
    "census": (),
    "criteo": ("--batch_size", "64", "--epochs", "6", "--held_out", "0.3"),
    "synthetic": (),
}
FLAGS = {
    "dataset": flags.Flag(flags.one_of("data set", tuple(_DATASETS)), "what to train on", tuple(_DATASETS)),
    **{
        name: flags.Flag(pathlib.Path, f"the folder with {name}'s files")
        for name in _DATASETS
        if name != "synthetic"
    },
    "kind": flags.Flag(flags.one_of("kind", tuple(_KINDS)), "what to compare", tuple(_KINDS)),
    "seeds": flags.Flag(flags.number(int, 0), "seeds of split, order and initial values", (1, 2, 3)),
    "dim": 16,
}
TOGETHER = ("kind",)
PASSED_ON = True  # flags that are not known here


def measure(point: argparse.Namespace) -> list[Result]:
    """Trains each kind on one data set with one seed."""
    run = ["--dataset", point.dataset, *_DATASETS[point.dataset], "--dim", str(point.dim)]
    if point.dataset != "synthetic":
        folder = getattr(point, point.dataset)
        if folder is None:
            processes.say(
                f"{point.dataset} is left out: give the folder with its files with --{point.dataset}"
            )
            return []
        run += ["--data_dir", str(folder)]
    run += ["--seed", str(point.seeds), "--device", "cpu", *point.others]
    found = {kind: _auc([*run, *_KINDS[kind]]) for kind in point.kind}
    return [Result({"dataset": point.dataset, "dim": point.dim, "seed": point.seeds}, {}, counts=found)]


def _auc(run: Sequence[str]) -> float:
    """The last held-out AUC of a run."""
    program = processes.BENCHMARKS.parent / "examples" / "train_ctr.py"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(program), *run, "--output_dir", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=processes.environment())
        return json.loads(pathlib.Path(folder, "results.json").read_text())["evaluations"][-1]["auc"]


def _losses(results: Sequence[Result]) -> dict[str, dict[str, tuple[float, float]]]:
    """By data set and kind: mean AUC less the first kind's of the same seeds, and its standard error."""
    losses: dict[str, dict[str, tuple[float, float]]] = {}
    for dataset in dict.fromkeys(result.question["dataset"] for result in results):
        runs = [result.counts for result in results if result.question["dataset"] == dataset]
        for kind in runs[0]:
            less = np.array([run[kind] - run[next(iter(run))] for run in runs])
            error = less.std(ddof=1) / math.sqrt(len(less)) if len(less) > 1 else 0.0
            losses.setdefault(dataset, {})[kind] = less.mean(), error
    return losses


def table(results: Sequence[Result]) -> str:
    """A line for each kind: bytes of a row, and the AUC less that of the first kind, whose own is shown."""
    if not results:
        return ""
    dim, losses, (first, *others) = results[0].question["dim"], _losses(results), results[0].counts
    exact = {
        dataset: np.mean([one.counts[first] for one in results if one.question["dataset"] == dataset])
        for dataset in losses
    }
    lines = [(first, str(_bytes(dim, first)), *(f"{value:.4f}" for value in exact.values()))]
    for kind in others:
        cells = [f"{of[kind][0]:+.4f} ± {of[kind][1]:.4f}" for of in losses.values()]
        lines.append((kind, str(_bytes(dim, kind)), *cells))
    return report.markdown(("rows and slots", f"bytes, dim {dim}", *losses), lines)


def _bytes(dim: int, kind: str) -> int:
    return bytes_of(dim, kind.replace(" to nearest", ""))


def draw(path: pathlib.Path, results: Sequence[Result]) -> None:
    """AUC less float32's over the bytes of a row."""
    dim = results[0].question["dim"]
    points = {
        dataset: {kind: (_bytes(dim, kind), *loss) for kind, loss in of.items()}
        for dataset, of in _losses(results).items()
    }
    plots.points(path, points, f"bytes of a row of {dim}, with slots", "AUC less float32's")
