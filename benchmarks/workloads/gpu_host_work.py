"""What the host does in a session's step with tables on a GPU, and its processor time.

On the GPU of tests/fake_gpu, whose own work is left out, as if it took no time.
"""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
import time

import numpy as np

from bench import flags
from bench.report import Result
from bench.timing import Contender, Sample
from bench.timing import measure as measure_turns

_LAYOUTS = ("sparse", "ragged", "dense")
FLAGS = {
    **dict(features=(26,), batch=(64,), hotness=(1, 10), dim=(8,), rounds=7, seed=1),
    "layout": flags.Flag(flags.one_of("layout", _LAYOUTS), f"one of {','.join(_LAYOUTS)}", _LAYOUTS),
}


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures a step of one group, and counts what it enqueues."""
    # Gives the process the device, before the library is loaded.
    sys.path.append(str(pathlib.Path(__file__).absolute().parents[2] / "tests"))
    device = importlib.import_module("fake_gpu_device")
    import tensorflow as tf

    import sparse_operation_kit as sok

    runtime = device.cuda_runtime()
    with tf.Graph().as_default(), device.session() as session:
        step = _step(point, tf, sok)
        nothing = tf.no_op()
        session.run(sok.Init(global_batch_size=point.batch))
        session.run(tf.compat.v1.global_variables_initializer())
        contenders = {
            "session.run alone": _contender(runtime, session.make_callable(nothing)),
            "step": _contender(runtime, session.make_callable(step)),
        }
        timings = measure_turns(contenders, point.rounds, calls=3)
        before = runtime.enqueued_work()
        session.run(step)
        after = runtime.enqueued_work()
    counts = {name: getattr(after, name) - getattr(before, name) for name, _ in after._fields_}
    del counts["run_ns"]
    ids = point.features * point.batch * (1 if point.layout == "dense" else point.hotness)
    question = {name: getattr(point, name) for name in ("layout", "features", "batch", "hotness", "dim")}
    return [Result(question, timings, "step", {"ids": ids, **counts})]


def _contender(runtime, call) -> Contender:
    """Takes the processor time of calls, without that of kernels and copies."""

    def run(calls: int) -> Sample:
        cpu, ran = time.process_time(), runtime.enqueued_work().run_ns
        for _ in range(calls):
            call()
        cpu, ran = time.process_time() - cpu, runtime.enqueued_work().run_ns - ran
        host = (cpu - ran / 1e9) * 1e3 / calls
        return Sample(host, host)

    return run


def _step(point: argparse.Namespace, tf, sok):
    """Returns a step of a table for each feature, with ids on the host and one tensor of gradients."""
    group = importlib.import_module("sparse_operation_kit.lookup.group")
    rng = np.random.default_rng(point.seed)
    with tf.device("/GPU:0"):
        tables = [sok.EmbeddingVariable(name=f"table_{t}", dim=point.dim) for t in range(point.features)]
    with tf.device("/CPU:0"):
        lookups = [_lookup(point, rng, table, tf, group) for table in tables]
        gradients = tf.constant(rng.random((point.batch, point.features * point.dim)), tf.float32)
    rows = group.lookup_group(lookups, side_by_side=True)[0]
    optimizer = sok.tf.keras.optimizers.LazyAdamOptimizer(0.01)
    return optimizer.apply_gradients(
        zip(tf.gradients(rows, tables, gradients), tables)  # noqa: B905
    )


def _lookup(point: argparse.Namespace, rng, table, tf, group):
    size = point.batch * (1 if point.layout == "dense" else point.hotness)
    ids = tf.constant(rng.integers(0, 1000, size))
    # Of random lengths: TensorFlow makes equal constants one.
    bags = np.sort(rng.integers(0, point.batch, size))
    if point.layout == "dense":
        return group.DenseLookup(table, ids)
    if point.layout == "sparse":
        indices = tf.constant(np.stack([bags, np.arange(size)], axis=1))
        return group.SparseLookup(table, tf.SparseTensor(indices, ids, [point.batch, size]), "sum")
    splits = tf.constant(np.searchsorted(bags, np.arange(point.batch + 1)))
    return group.RaggedLookup(table, tf.RaggedTensor.from_row_splits(ids, splits, validate=False), "sum")
