"""The speed of examples/train_ctr.py with our tables and with `--tables tensorflow`.

Flags that are unknown here are passed to train_ctr.py.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
import tempfile

from bench import flags, processes
from bench.report import Goal, Result
from bench.timing import measure as measure_rounds

_DATASETS = ("movielens", "synthetic")
FLAGS = {
    "dataset": flags.Flag(flags.one_of("data set", _DATASETS), "movielens, synthetic or both", _DATASETS),
    "movielens": flags.Flag(pathlib.Path, "the folder with MovieLens 100K's files"),
    "model": flags.Flag(str, "as in train_ctr.py", "dcn_v2"),
    "optimizer": flags.Flag(str, "as in train_ctr.py", ("lazy_adam",)),
    "rounds": 7,
    "turn_ms": flags.Flag(flags.number(float, 1e-9), "approximate length of a turn in a round", 1500.0),
}
PASSED_ON = True  # flags that are not known here
_OURS, _THEIRS = "sok", "tensorflow"
# Tables, and a lower bound of a step's time: the same model on constant embeddings.
_TABLES = (_OURS, _THEIRS, "no tables")
_MAX_STEPS = 400
# Enough epochs that no run ends before it has been measured. Little data is held out, as it is not needed.
_ENDLESS = ("--epochs", "1000000", "--held_out", "0.01", "--held_out_samples", "1000")


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one data set and optimizer; a call is a step."""
    if point.dataset == "movielens" and point.movielens is None:
        processes.say("movielens is left out: give the folder with its files with --movielens")
        return []
    run = ["--dataset", point.dataset, *point.others, "--model", point.model, "--optimizer", point.optimizer]
    if point.dataset == "movielens":
        run += ["--data_dir", str(point.movielens)]
    variables = processes.environment()
    variables["PYTHONPATH"] = f"{processes.BENCHMARKS.parent / 'examples'}:{variables['PYTHONPATH']}"
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = {}
        for name in _TABLES:
            command = [sys.executable, "-m", "bench.trainer_program", name, *run, *_ENDLESS]
            process = processes.MeasuringProcess(name, command, variables, folder / f"{name}.log")
            running[name] = stack.enter_context(process)
        for process in running.values():
            process.wait_until_ready()
        batch = int(running[_OURS].ask("0 batch 0"))
        contenders = {name: process.contender("step") for name, process in running.items()}
        timings = measure_rounds(contenders, point.rounds, point.turn_ms, _MAX_STEPS)
        question = {
            "trainer": point.dataset,
            "model": point.model,
            "optimizer": point.optimizer,
            "batch": batch,
        }
        return [Result(question, timings, _OURS, amount=batch, unit="samples", goals=(Goal(_THEIRS, 3.0),))]
