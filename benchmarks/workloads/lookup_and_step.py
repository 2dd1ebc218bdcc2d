"""Lookups and training steps of a group of features: ours, TensorFlow's, and the bare engine's."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile

from bench import compare, flags, machine, processes
from bench.jobs import Job
from bench.report import Result
from bench.timing import contender

FLAGS = {
    **dict(features=(26,), batch=(4096,), zipf=(1.05,), table_mb=(640.0,), rows=None, threads=(2,)),
    **dict(dim=(16, 64), optimizer=flags.OPTIMIZERS[:4], hotness=(1, 10), batches=4, rounds=7, seed=1),
    "no-engine": flags.Flag(str, "do not measure the bare engine", False),
    "device": flags.Flag(flags.one_of("device", ("cpu", "gpu")), "of both sides; gpu: no bare engine", "cpu"),
}
WHATS = ("forward", "lookup", "step")
# TensorFlow has one thread pool per process, so each number of threads needs a process.
ONE_PROCESS = True


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one set of tables."""
    # Imported here, because --help and other parents do not need TensorFlow.
    import tensorflow as tf

    from bench.session_sides import SokSide, TensorFlowSide

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    on_gpu = point.device == "gpu"
    if on_gpu and not tf.config.experimental.list_physical_devices("GPU"):
        sys.exit("--device gpu: TensorFlow finds no GPU, or has no plugin for it")
    os.environ["SOK_DEVICE"] = point.device  # of our tables
    job = Job.of(point)
    processes.say(str(job))
    batches = job.make_batches()
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        job = job.write_ids(batches, folder / "ids")
        sides = {"sok": SokSide(job, on_gpu, True), "tensorflow": TensorFlowSide(job, on_gpu, True)}
        for side in sides.values():
            stack.callback(side.session.close)
        compare.check_agreement(sides, folder)
        measured: dict[str, object] = dict(sides)
        program = None if on_gpu or point.no_engine else processes.find_program("group_benchmark")
        if program is not None:
            command = processes.engine_command(program, job)
            engine = stack.enter_context(processes.MeasuringProcess("engine", command))
            engine.wait_until_ready()
            measured[compare.ENGINE] = engine
        copy = sides["sok"].call("device_copy") if on_gpu else machine.memory_copy(job.threads)
        results = compare.compare(job, batches, measured, WHATS, point.rounds, contender(copy))
    return [dataclasses.replace(one, question={"device": point.device, **one.question}) for one in results]
