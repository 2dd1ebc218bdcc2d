"""Requests to SavedModels: in TensorFlow's own ops, with our ops, and tfra's; each in a process of its own.

The model looks each feature up in a table of its own, and has two dense layers. Processes take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import flags, processes, report, sides
from bench.jobs import Job
from bench.report import Result
from bench.timing import Timing

# Not those of bench.serving_sides, whose import is TensorFlow's.
STOCK, LIBRARY, TFRA = "stock", "library", "tfra"
FLAGS = {
    "batch": flags.Flag(flags.number(), "samples of a request", (1, 64, 1024)),
    "clients": flags.Flag(flags.number(), "threads that ask at the same time", (1,)),
    **dict(features=(26,), dim=(16,), rows=2_600_000, hotness=(1,), zipf=1.05),
    **dict(threads=2, batches=20, rounds=10, seed=1),
    "turn_ms": flags.Flag(flags.number(float, 1e-9), "length of a turn in a round", 500.0),
    "sides": flags.Flag(flags.one_of("side", (STOCK, LIBRARY, TFRA)), "some of them", (STOCK, LIBRARY, TFRA)),
    "environments": flags.Flag(pathlib.Path, "folder of the peers' environments", sides.default_folder()),
}
TOGETHER = ("batch", "clients", "sides")
_TOLERANCE = 1e-4  # between the logits of all sides
_LOADED = ("load s", "load cpu s", "MB", "peak MB", "ops")


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures all batches of one model."""
    job = Job.of(point, batch=1)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = {}
        for name in _write(point, job, folder):
            command, variables = _command(name, "serve", name, point, job, folder)
            process = processes.MeasuringProcess(name, command, variables, folder / f"{name}.log")
            running[name] = stack.enter_context(process)
            process.wait_until_ready()  # one after another, for the sake of load times
        loaded = {name: json.loads(process.ask("0 loaded 0")) for name, process in running.items()}
        _check(running, folder)
        asked = {(batch, clients): {} for batch in point.batch for clients in point.clients}
        for number in range(point.rounds + 1):  # the first round warms up
            for (batch, clients), taken in asked.items():
                for name, process in running.items():
                    turn = json.loads(process.ask(f"0 ask {batch},{clients},{point.turn_ms}"))
                    if number:
                        taken.setdefault(name, []).append(turn)
    shared = {name: getattr(point, name) for name in ("features", "hotness", "dim", "threads")}
    return [
        Result(
            {**shared, "rows": job.rows, "batch": batch, "clients": clients},
            {name: _timing(turns) for name, turns in taken.items()},
            next(iter(taken)),
            _counts(taken, loaded),
        )
        for (batch, clients), taken in asked.items()
    ]


def _write(point: argparse.Namespace, job: Job, folder: pathlib.Path) -> list[str]:
    """Writes the models; returns the names of those that there are."""
    written = [name for name in point.sides if name != TFRA]
    libraries = {LIBRARY} if written else set()
    if TFRA in point.sides and sides.can_run(
        TFRA, dataclasses.replace(job, optimizer="sgd"), point.environments
    ):
        written.append(TFRA)
        libraries.add(TFRA)
    for library in libraries:
        command, variables = _command(library, "write", library, point, job, folder)
        subprocess.run(command, env=variables, check=True, stdout=subprocess.DEVNULL)
    return written


def _command(
    name: str, what: str, argument: str, point: argparse.Namespace, job: Job, folder: pathlib.Path
) -> tuple[list[str], dict[str, str]]:
    python, variables = sys.executable, processes.environment()
    if name == TFRA:
        python = str(sides.interpreter(TFRA, point.environments))
        variables = processes.environment(PYTHONPATH=str(processes.BENCHMARKS), TF_USE_LEGACY_KERAS="1")
    of_job = json.dumps(dataclasses.asdict(job))
    return [python, "-m", "bench.serving_sides", what, argument, of_job, str(folder)], variables


def _check(running: dict[str, processes.MeasuringProcess], folder: pathlib.Path) -> None:
    outputs = {name: process.checked(folder / f"{name}.npy") for name, process in running.items()}
    first = next(iter(outputs))
    for name, values in outputs.items():
        np.testing.assert_allclose(
            values, outputs[first], rtol=0, atol=_TOLERANCE, err_msg=f"{first}, {name}"
        )


def _timing(turns: Sequence[dict[str, Any]]) -> Timing:
    took = [one for turn in turns for one in turn["took"]]
    return Timing(statistics.median(took), min(took), statistics.median(turn["cpu"] for turn in turns))


def _counts(taken: dict[str, list], loaded: dict[str, dict]) -> dict[str, float]:
    counts = {}
    for name, turns in taken.items():
        took = [one for turn in turns for one in turn["took"]]
        counts[f"{name}: p99"] = float(np.percentile(took, 99))
        counts[f"{name}: requests/s"] = statistics.median(turn["rate"] for turn in turns)
        for key, value in zip(_LOADED, loaded[name].values()):
            counts[f"{name}: {key}"] = float(value)
    return counts


def table(results: Sequence[Result]) -> str:
    """A line for each side of each batch, and a second table of what loading took."""
    lines, first = [], results[0]
    varied = report.varied_keys(results) or ["batch"]
    for result in results:
        for name, timing in result.timings.items():
            lines.append(
                [
                    *(report.text_of(result.question[key]) for key in varied),
                    name,
                    f"{result.counts[f'{name}: requests/s']:.0f}",
                    f"{timing.median:.2f}",
                    f"{result.counts[f'{name}: p99']:.2f}",
                    f"{timing.median_cpu:.2f}",
                    f"{result.ratio(name):.2f}",
                ]
            )
    models = list({str(_model(result)): result for result in results}.values())
    loads = [
        [
            *(report.text_of(value) for key, value in _model(result).items() if key in varied),
            name,
            *(report.text_of(round(result.counts[f"{name}: {key}"], 2)) for key in _LOADED),
        ]
        for result in models
        for name in result.timings
    ]
    head = [*(key for key in _model(first) if key in varied), "who", *_LOADED]
    requests = report.markdown([*varied, "who", "requests/s", "ms (p50)", "p99", "cpu ms", "/first"], lines)
    return f"{report.title(first, varied)}\n\n{requests}\n\n{report.markdown(head, loads)}"


def _model(result: Result) -> dict[str, Any]:
    """The part of a question that is a model, not its requests."""
    return {key: value for key, value in result.question.items() if key not in ("batch", "clients")}
