"""Lookups and steps of the bare engine on tables whose rows, slots or second moments take fewer bytes."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Mapping, Sequence

from bench import flags, jobs, processes
from bench.report import Result
from bench.timing import measure as measure_turns

# What is compared: the optimizer, and the types of rows and slots. SGD shows what a step takes at least: it
# has no slots, and rows that nothing unpacks or rounds.
_KINDS = {
    "float32": ("lazy_adam", "float32", "float32"),
    "row moment": ("rowwise_adam", "float32", "float32"),
    "bfloat16 rows": ("lazy_adam", "bfloat16", "float32"),
    "bfloat16": ("lazy_adam", "bfloat16", "bfloat16"),
    "float16 rows": ("lazy_adam", "float16", "bfloat16"),
    "bfloat16, row moment": ("rowwise_adam", "bfloat16", "bfloat16"),
    "float32, SGD": ("sgd", "float32", "float32"),
}
_WIDE_SLOTS = {"lazy_adam": 2, "rowwise_adam": 1, "sgd": 0}
_WHATS = ("forward", "step")
FLAGS = {
    **dict(threads=(2,), table_mb=(1000.0,), rows=None, features=(26,), batch=(4096,), zipf=(1.05,)),
    **dict(dim=(64,), hotness=(1, 10), batches=4, rounds=7, seed=1),
    "what": flags.Flag(flags.one_of("name", _WHATS), "forward, step or both", _WHATS),
}
TOGETHER = ("what",)


def bytes_of(dim: int, kind: str) -> int:
    """Bytes of a record, as RecordLayout has them (cc/table/record_layout.h)."""
    optimizer, rows, slots = _KINDS[kind]
    by_row = optimizer == "rowwise_adam"
    of_slot = 4 if slots == "float32" else 2
    wide = dim * (4 if rows == "float32" else 2) + _WIDE_SLOTS[optimizer] * dim * of_slot
    return wide + (4 if by_row else 0) + (0 if rows == slots == "float32" else 4)


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one set of tables, of each kind in a process of its own, in turns."""
    job = jobs.Job.of(point)
    kinds = {
        f"{kind}, {bytes_of(job.dim, kind)} bytes a row": (
            optimizer,
            "--row_type",
            rows,
            "--slot_type",
            slots,
        )
        for kind, (optimizer, rows, slots) in _KINDS.items()
    }
    return compare_kinds(point, job, kinds, {"MB of float32 rows": round(job.bytes / 1e6)})


def compare_kinds(
    point: argparse.Namespace,
    job: jobs.Job,
    kinds: Mapping[str, Sequence[str]],
    of_tables: Mapping[str, object],
    steps: int = 0,
) -> list[Result]:
    """Measures programs of the engine in turns; the first kind is what the others are compared with.

    Args:
      point: The flags; measures each of `point.what`.
      job: The job, without its optimizer.
      kinds: The optimizer of each kind, and more flags of its program.
      of_tables: What the question says of the tables, besides the job.
      steps: How many each program makes before.
    """
    program = processes.find_program("group_benchmark")
    if program is None:
        return []
    batches = job.make_batches()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        job = job.write_ids(batches, pathlib.Path(name) / "ids")
        running = {}
        for kind, (optimizer, *more) in kinds.items():
            command = processes.engine_command(program, dataclasses.replace(job, optimizer=optimizer))
            running[kind] = stack.enter_context(processes.MeasuringProcess(kind, command + more))
        for process in running.values():
            process.wait_until_ready()
            if steps:
                process.ask(f"0 step {steps}")
        named = ("threads", "features", "batch", "zipf", "dim", "hotness")
        question = {**{name: getattr(job, name) for name in named}, **of_tables}
        counts = {"unique": jobs.unique_per_step(batches)}
        results = []
        for what in point.what:
            contenders = {kind: process.contender(what) for kind, process in running.items()}
            timings = measure_turns(contenders, point.rounds)
            results.append(Result({**question, "what": what}, timings, next(iter(running)), counts))
        return results
