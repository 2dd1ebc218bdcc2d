"""Starts the ranks of a workload on this machine, and is the program of each rank.

A workload over ranks has a function `measure_rank(rank)`, which all ranks call with the same flags. Rank 0
writes its results for the process that started the ranks.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from bench import processes, timing
from bench.jobs import Batch, Job
from bench.report import Result, result_of

# The flags of launches, and the steps that are counted.
FLAGS = dict(transport="mpi", cycle_time=1.0, threads=0, batches=4, rounds=7, calls=5, seed=1)
_TASKS = pathlib.Path("/proc/self/task")


def launch(workload: str, point: argparse.Namespace) -> list[Result]:
    """Runs the workload `workload` on `point.ranks` ranks.

    Raises:
      SystemExit: A rank failed; the message has what the ranks printed.
    """
    processes.say(f"{point.ranks} ranks, {point.transport}, cycle time {point.cycle_time:g} ms")
    values = {name: value for name, value in vars(point).items() if isinstance(value, (int, float, str))}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "results.json")
        command = [*_launcher(point.transport, point.ranks), sys.executable, "-m", "bench.ranks"]
        done = subprocess.run(
            [*command, workload, json.dumps(values), str(path)],
            env=processes.environment(HOROVOD_CYCLE_TIME=str(point.cycle_time)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"The ranks failed:\n{done.stdout}")
        return [result_of(fields) for fields in json.loads(path.read_text(encoding="utf-8"))]


def _launcher(transport: str, ranks: int) -> list[str]:
    if transport == "gloo":
        horovodrun = "from horovod.runner.launch import run_commandline; run_commandline()"
        return [sys.executable, "-c", horovodrun, "-np", str(ranks), "--gloo", "--network-interface", "lo"]
    if shutil.which("mpirun") is None:
        raise SystemExit("There is no mpirun. Install it, or use --transport gloo.")
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    # Waiting ranks yield their core, because there are more threads than cores.
    options = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    return ["mpirun", *as_root, *options, "-np", str(ranks)]


class Rank(NamedTuple):
    """What a workload gets on each rank: the flags, the session, and which rank of how many this is."""

    point: argparse.Namespace
    session: Any
    cpu_seconds: Callable[[], float]
    number: int
    size: int

    def batches_of_all(self, job: Job) -> list[list[Batch]]:
        """The batches of each rank; `job.batch` is for all together. Frequent ids are the same on all."""
        share = {"batch": job.batch // self.size, "batches": job.batches * self.size}
        drawn = dataclasses.replace(job, **share).make_batches()
        return [drawn[rank :: self.size] for rank in range(self.size)]

    def measure(self, steps: Mapping[str, Sequence[Any]]) -> dict[str, timing.Timing]:
        """Measures steps in interleaved rounds, in which all ranks make the same calls."""
        contenders = {
            name: timing.contender(lambda ops=list(ops): self.session.run(ops), self.cpu_seconds)
            for name, ops in steps.items()
        }
        return timing.measure(contenders, self.point.rounds, calls=self.point.calls)

    def exchanged(self, step: Sequence[Any], restart: Callable[[Any], object]) -> dict[str, float]:
        """What a step over the batches exchanges, on average, by the fields of `exchange_statistics`."""
        from sparse_operation_kit.ranks.exchange_names import exchange_statistics

        statistics = exchange_statistics()
        restart(self.session)
        before = self.session.run(statistics)
        for _ in range(self.point.batches):
            self.session.run(list(step))
        after = self.session.run(statistics)
        return {
            name: float(getattr(after, name) - getattr(before, name)) / self.point.batches
            for name in statistics._fields
        }


def _threads() -> Collection[str]:
    return frozenset(task.name for task in _TASKS.iterdir())


def _clock_without(others: Collection[str]) -> Callable[[], float]:
    """A clock of this process's processor time, in seconds, without that of the threads `others` (Linux)."""

    def seconds() -> float:
        # The first number is the time on a processor, in ns.
        of_others = sum(int((_TASKS / name / "schedstat").read_text().split()[0]) for name in others)
        return time.process_time() - of_others * 1e-9

    return seconds


def _main(workload: str, values: str, path: str) -> None:
    import tensorflow as tf

    import sparse_operation_kit as sok
    from bench.session_sides import session_config

    import horovod.tensorflow as hvd  # isort: skip - after TensorFlow's flags are set

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    point = argparse.Namespace(**json.loads(values))
    before = _threads()
    hvd.init()
    cpu_seconds = _clock_without(_threads() - before)
    config = session_config(point.threads or max(1, len(os.sched_getaffinity(0)) // hvd.size()))
    config.inter_op_parallelism_threads = max(2, config.inter_op_parallelism_threads)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        session.run(sok.Init(global_batch_size=point.batch, seed=point.seed))
        rank = Rank(point, session, cpu_seconds, hvd.rank(), hvd.size())
        results = importlib.import_module(f"workloads.{workload}").measure_rank(rank)
    if hvd.rank() == 0:
        rows = [dataclasses.asdict(result) for result in results]
        pathlib.Path(path).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
