"""Instructions and cache misses of the parts of an engine's training step, counted by callgrind.

Counts do not depend on the machine's load. Needs valgrind, and `bazel build
//benchmarks/engine:group_benchmark`.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np

from bench import flags, jobs, plots, processes
from bench.report import Result

FLAGS = {
    **dict(features=26, rows=1_000_000, dim=16, batch=4096, hotness=(1, 10), zipf=1.05, seed=1),
    "before": flags.Flag(pathlib.Path, "another checkout's group_benchmark, to count beside this one's"),
}

STEP, REST = "step", "everything else"
# The parts of a step, with the beginnings of the names of their functions. An update sums gradients block by
# block, so these sums are included in its counts and must be subtracted.
PARTS = {
    "dedup": "sok::Deduplicator::Run(",
    "index find": "sok::IdIndex::Find(",
    "rows to outputs": "sok::WriteOutput(",
    "sort gradients by row": "sok::PartGradients::Prepare(",
    "sum gradients": "sok::SegmentSums::Take(",
    "update rows": "sok::TouchedRowsOptimizer<sok::LazyAdam>::Apply(",
}
_INSIDE = {"update rows": "sum gradients"}
# The difference between a run with more steps and one with fewer contains neither the start nor the first
# steps.
_FEW, _MORE = 2, 6
_COUNTS = ("instructions per id", "L1 misses per id", "L2 misses per id")

_TOTAL = "PROGRAM TOTALS"
# The same on every machine: 48 KiB of L1 for data, and a last level of 1 MiB, the size of a core's L2.
# Prefetches are not simulated: a line that was prefetched in time counts as a miss too.
_CACHES = ("--I1=32768,8,64", "--D1=49152,12,64", "--LL=1048576,16,64")
_EVENTS = ("Ir", "D1mr", "D1mw", "DLmr", "DLmw")
_COLUMN = re.compile(r"\s*([\d,]+|\.)\s+(?:\(\s*[\d.]+%\)\s+)?")


def measure(point: argparse.Namespace) -> list[Result]:
    """Counts a step's parts for one kind of bags."""
    program = processes.find_program("group_benchmark")
    if program is None:
        sys.exit(1)
    programs = {"": program, **({"before: ": point.before} if point.before else {})}
    job = jobs.Job.of(point, optimizer="lazy_adam", batches=2)
    counts: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        batches = job.make_batches()
        job = job.write_ids(batches, folder / "ids")
        for prefix, one in programs.items():
            for part, values in _parts(processes.engine_command(one, job), folder, batches).items():
                named = zip((prefix + count for count in _COUNTS), map(float, values))
                counts.setdefault(part, {}).update(named)
    return [Result({"ids per bag": job.hotness, "part": part}, {}, counts=of) for part, of in counts.items()]


def draw(path: pathlib.Path, results: Sequence[Result]) -> None:
    """Draws the instructions, in a panel for each kind of bags."""
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for result in results:
        bars = {name: value for name, value in result.counts.items() if name.endswith(_COUNTS[0])}
        panels.setdefault(f"ids per bag: {result.question['ids per bag']}", {})[result.question["part"]] = (
            bars
        )
    plots.bars(path, panels, _COUNTS[0])


def _parts(command: Sequence[str], folder: pathlib.Path, batches: list[jobs.Batch]) -> dict[str, np.ndarray]:
    few, more = (_run(command, f"0 step {steps}\n", folder / f"{steps}.out") for steps in (_FEW, _MORE))
    scale = 1 / (jobs.ids_per_step(batches) * (_MORE - _FEW))
    parts = {name: (of(more, begins) - of(few, begins)) * scale for name, begins in PARTS.items()}
    for name, inside in _INSIDE.items():
        parts[name] = parts[name] - parts[inside]
    step = (more[_TOTAL] - few[_TOTAL]) * scale
    return {**parts, REST: step - sum(parts.values()), STEP: step}


def _run(command: Sequence[str], inputs: str, out: pathlib.Path) -> dict[str, np.ndarray]:
    """Runs a program under callgrind; returns what `parse` does."""
    tool = ["valgrind", "--tool=callgrind", "--cache-sim=yes", *_CACHES, f"--callgrind-out-file={out}"]
    done = subprocess.run([*tool, *command], input=inputs, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} under callgrind failed: {done.stderr[-2000:]}")
    annotate = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", f"--show={','.join(_EVENTS)}"]
    return parse(subprocess.check_output([*annotate, str(out)], text=True))


def parse(listing: str) -> dict[str, np.ndarray]:
    """Reads callgrind_annotate's listing of `_EVENTS`.

    Returns:
      By function, with all that it calls, its instructions, and the misses of data in L1 and in L2.
    """
    costs: dict[str, np.ndarray] = {}
    for line in listing.splitlines():
        values, at = [], 0
        for _ in _EVENTS:
            column = _COLUMN.match(line, at)
            if column is None:
                break
            values.append(0 if column[1] == "." else int(column[1].replace(",", "")))
            at = column.end()
        if len(values) < len(_EVENTS):
            continue
        # "file:function [object]"; the file is "???" without debugging information.
        name = line[at:].strip().rsplit(" [", 1)[0]
        name = name if name == _TOTAL else name.split(":", 1)[-1]
        counts = np.array([values[0], values[1] + values[2], values[3] + values[4]])
        costs[name] = max(costs.get(name, counts), counts, key=lambda cost: cost[0])
    return costs


def of(costs: Mapping[str, np.ndarray], begins: str) -> np.ndarray:
    """The counts of the functions whose names start with `begins`, including the functions they call.

    If several names match, the largest count is returned: a matching function that another one calls, as in
    recursion, must not count twice.
    """
    counts = [cost for name, cost in costs.items() if name.startswith(begins)]
    return max(counts, key=lambda cost: cost[0], default=np.zeros(len(_COUNTS)))
