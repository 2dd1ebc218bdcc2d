"""One rank of lookup_prefetch.py: the same training steps with and without lookups a step ahead.

Rank 0 writes its results as JSON to the path in the last argument.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok
from bench import ids, machine, rank_flags
from bench.axes import Bags
from bench.inputs import RotatingBatches
from bench.optimizers import make_optimizer
from bench.ranks_timing import interleaved
from bench.targets import consumed
from sparse_operation_kit.lookup import group

import horovod.tensorflow as hvd  # isort: skip - after TensorFlow's flags are set


def main(arguments: Sequence[str]) -> None:
    """Runs one rank."""
    flags = rank_flags.parse(arguments)
    hvd.init()
    rows = flags.rows // flags.features
    bags = Bags(flags.batch // hvd.size(), flags.hotness, flags.zipf)
    # Frequent ids are the same on all ranks; each rank has its own batches.
    of_all = ids.make_batches(bags, flags.features, rows, flags.batches * hvd.size(), flags.seed)
    batches = of_all[hvd.rank() :: hvd.size()]
    threads = max(1, len(os.sched_getaffinity(0)) // hvd.size())
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        found = _measure(session, flags, batches)
    if hvd.rank() == 0:
        with open(flags.output, "w", encoding="utf-8") as stream:
            json.dump({"machine": machine.describe(), "threads": threads, **found}, stream)


def _measure(session: tf.compat.v1.Session, flags: argparse.Namespace, batches: list[ids.Batch]) -> dict:
    session.run(sok.Init(global_batch_size=flags.batch, seed=flags.seed))
    tables = [sok.EmbeddingVariable(f"table_{feature}", flags.dim) for feature in range(flags.features)]
    model = _Model(flags.features * flags.dim, flags.hidden, make_optimizer(flags.optimizer))
    rotations = [RotatingBatches(batches) for _ in ("plain", "ahead")]
    lookups = [_look_up(tables, rotation, flags.hotness) for rotation in rotations]
    plain = lookups[0](*rotations[0].tensors)
    prefetch = sok.LookupPrefetch(rotations[1].iterator, lookups[1])
    contenders = {
        "plain": [model.step(plain), consumed(plain)],
        "ahead": [model.step(prefetch.outputs), consumed(prefetch.outputs), prefetch.advance],
    }
    session.run(tf.compat.v1.global_variables_initializer())
    for rotation in rotations:
        rotation.restart(session)
    session.run(prefetch.prime)
    _check(session, len(batches), plain, prefetch)
    timings = interleaved(session, contenders, flags.rounds, flags.calls)
    return {
        "ids": ids.ids_per_step(batches),
        "unique": ids.unique_per_step(batches),
        "timings": {name: dataclasses.asdict(timing) for name, timing in timings.items()},
    }


def _look_up(tables: Sequence[tf.Variable], rotation: RotatingBatches, hotness: int):
    def look_up(*tensors: tf.Tensor) -> list[tf.Tensor]:
        pairs = zip(tables, rotation.features_of(tensors))
        if hotness == 1:
            return group.lookup_group([group.DenseLookup(table, feature.ids) for table, feature in pairs])
        return group.lookup_group(
            [group.SparseLookup(table, feature.sparse, "mean") for table, feature in pairs]
        )

    return look_up


class _Model:
    """Two dense layers over all rows of a sample, so that a step has work besides lookups."""

    def __init__(self, inputs: int, hidden: int, optimizer: tf.compat.v1.train.Optimizer) -> None:
        initializer = tf.compat.v1.random_normal_initializer(stddev=0.01, seed=1)
        self._weights = [
            tf.compat.v1.get_variable("first", [inputs, hidden], initializer=initializer, use_resource=True),
            tf.compat.v1.get_variable("second", [hidden, 1], initializer=initializer, use_resource=True),
        ]
        self._optimizer = optimizer

    def step(self, outputs: Sequence[tf.Tensor]) -> tf.Operation:
        hidden = tf.nn.relu(tf.matmul(tf.concat(outputs, axis=1), self._weights[0]))
        return [
            self._optimizer.minimize(tf.reduce_mean(tf.square(tf.matmul(hidden, self._weights[1]) - 1.0)))
        ]


def _check(
    session: tf.compat.v1.Session, count: int, plain: Sequence[tf.Tensor], prefetch: sok.LookupPrefetch
) -> None:
    """Checks that both sides look up the same rows, for all batches."""
    for number in range(count):
        expected = session.run(list(plain))
        ahead, _ = session.run([list(prefetch.outputs), prefetch.advance])
        for a, b in zip(expected, ahead):
            np.testing.assert_array_equal(a, b, err_msg=f"batch {number}")


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main(sys.argv[1:])
