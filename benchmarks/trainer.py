"""Measures the samples per second of examples/train_ctr.py with our tables and with `--tables tensorflow`.

`--help` lists the flags; README.md explains the table.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from bench import axes, machine, markdown
from bench.goal import Goal
from bench.measuring_process import MeasuringProcess, ProcessContender
from bench.timing import Timing, measure

OURS, THEIRS = "sok", "tensorflow"
# Lower bounds of a step's time: the same model on constant embeddings, and only reading the batches.
_NO_TABLES = "no tables"
BOUNDS = (_NO_TABLES, "batches alone")
LEAST = 3.0
_EXAMPLES = pathlib.Path(__file__).absolute().parents[1] / "examples"
_TURN_MS, _MAX_STEPS = 1500.0, 400
_OPS_SHOWN = 6
# Enough epochs that no run ends before it has been measured. Little data is held out, as it is not needed.
_ENDLESS = ("--epochs", "1000000", "--held_out", "0.01", "--held_out_samples", "1000")


@dataclasses.dataclass(frozen=True)
class Row:
    """Results for one data set and optimizer: milliseconds per step of `batch` samples, by kind of tables."""

    dataset: str
    model: str
    optimizer: str
    batch: int
    timings: dict[str, Timing]
    # Milliseconds of a step's ops over all threads, by kind of tables and type of op; empty without --ops.
    ops: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)

    def speed(self, name: str) -> float:
        """Samples per second."""
        return self.batch / self.timings[name].median * 1e3

    def goal(self) -> Goal:
        """The goal for our speed divided by that of TensorFlow's tables."""
        question = f"trainer, {self.dataset}, {self.model}, {self.optimizer}"
        return Goal(question, f"--tables {THEIRS}", self.speed(OURS) / self.speed(THEIRS), LEAST)


def read_rows(path: pathlib.Path) -> list[Row]:
    """Reads the rows of a run's --json file."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [
        Row(**{**row, "timings": {name: Timing(**fields) for name, fields in row["timings"].items()}})
        for row in rows
    ]


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags, passed_on = _parser().parse_known_args(arguments)
    data = {"synthetic": ["--dataset", "synthetic"]}
    if flags.movielens is not None:
        data["movielens"] = ["--dataset", "movielens", "--data_dir", str(flags.movielens)]
    elif "movielens" in flags.dataset:
        _say("movielens is left out: give the folder with its files with --movielens")
    rows = [
        _measure(flags, dataset, optimizer, [*data[dataset], *passed_on])
        for dataset in flags.dataset
        for optimizer in flags.optimizer
        if dataset in data
    ]
    if flags.json is not None:
        content = {"machine": machine.describe(), "rows": [dataclasses.asdict(row) for row in rows]}
        flags.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if flags.plot is not None:
        from bench import ratio_plot

        ratio_plot.write(flags.plot, [row.goal() for row in rows])
    print("\n\n".join([table(rows), *(ops_table(row) for row in rows if row.ops)]))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Other flags are passed to train_ctr.py.")
    add = parser.add_argument
    known = ("movielens", "synthetic")
    datasets = axes.list_of(axes.one_of("data set", known))
    add("--dataset", type=datasets, default=known, help="movielens, synthetic or both: a,b")
    add("--movielens", type=pathlib.Path, default=None, help="the folder with MovieLens 100K's files")
    add("--model", default="dcn_v2", help="as in train_ctr.py")
    add(
        "--optimizer", type=axes.list_of(str), default=("lazy_adam",), help="as in train_ctr.py; several: a,b"
    )
    add("--rounds", type=axes.at_least_one, default=7, help="interleaved rounds, without the warm-up")
    add("--turn_ms", type=axes.positive, default=_TURN_MS, help="approximate length of a turn in a round")
    add("--ops", type=int, default=0, help="number of steps to trace; lists the time of their ops")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    add("--plot", type=pathlib.Path, default=None, help="picture to draw, .png or .svg")
    return parser


def _measure(flags: argparse.Namespace, dataset: str, optimizer: str, run: Sequence[str]) -> Row:
    _say(f"{dataset}, {flags.model}, {optimizer}")
    run = [*run, "--model", flags.model, "--optimizer", optimizer, *_ENDLESS]
    path = os.pathsep.join([str(_EXAMPLES), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes = {}
        for name in (OURS, THEIRS, *BOUNDS):
            command = [sys.executable, "-m", "bench.trainer_program", name, *run]
            log = folder / f"{name}.log"
            processes[name] = stack.enter_context(MeasuringProcess(name, command, environment, log))
        for process in processes.values():
            process.wait_until_ready()
        batch = int(processes[OURS].ask("batch"))
        contenders = [ProcessContender(name, process, 0, "step") for name, process in processes.items()]
        timings = measure(contenders, flags.rounds, flags.turn_ms, _MAX_STEPS)
        ops = {
            name: json.loads(processes[name].ask(f"0 ops {flags.ops}"))
            for name in (OURS, THEIRS, _NO_TABLES)
            if flags.ops
        }
        return Row(dataset, flags.model, optimizer, batch, timings, ops)


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown; the last column is the speed divided by that of TensorFlow's tables."""
    head = ("data set", "model", "optimizer", "batch", "tables", "ms per step (min)", "cpu ms", "samples/s")
    lines = []
    for row in rows:
        question = row.dataset, row.model, row.optimizer, str(row.batch)
        for name, timing in row.timings.items():
            times = f"{timing.median:.2f} ({timing.minimum:.2f})", f"{timing.median_cpu:.2f}"
            speeds = f"{row.speed(name):.0f}", f"{row.speed(name) / row.speed(THEIRS):.2f}"
            lines.append((*question, name, *times, *speeds))
    return markdown.table((*head, f"/{THEIRS}"), lines)


def ops_table(row: Row) -> str:
    """The time of a step's ops in Markdown: all together, and the types that took most."""
    names = list(row.ops)
    most = {op for ops in row.ops.values() for op in sorted(ops, key=ops.get, reverse=True)[:_OPS_SHOWN]}
    # Types with equal times are sorted by name, so that the order does not depend on the set's.
    ordered = sorted(most, key=lambda op: (-max(ops.get(op, 0.0) for ops in row.ops.values()), op))
    lines = [("all ops", *(f"{sum(row.ops[name].values()):.2f}" for name in names))]
    lines += [(op, *(f"{row.ops[name].get(op, 0.0):.2f}" for name in names)) for op in ordered]
    return markdown.table((f"ms of ops in a step, {row.dataset}, {row.optimizer}", *names), lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
