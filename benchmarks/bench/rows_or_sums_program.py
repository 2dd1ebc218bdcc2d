"""One rank of rows_or_sums.py: measures steps that exchange rows and steps that exchange sums.

Rank 0 writes its results as JSON to the path in the last argument.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

import horovod.tensorflow as hvd
import tensorflow as tf

import sparse_operation_kit as sok
from bench import ids, rank_flags
from bench.axes import Bags
from bench.inputs import RotatingBatches
from bench.ranks_timing import interleaved
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.exchange_statistics import exchange_statistics

MODES = ("rows", "sums")


def main(arguments: Sequence[str]) -> None:
    """Runs one rank."""
    flags = rank_flags.parse(arguments)
    hvd.init()
    bags = Bags(flags.batch // hvd.size(), flags.hotness, flags.zipf)
    rows = flags.rows // flags.features
    of_all = ids.make_batches(bags, flags.features, rows, flags.batches * hvd.size(), flags.seed)
    batches = of_all[hvd.rank() :: hvd.size()]
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        result = _measure(session, flags, batches)
    if hvd.rank() == 0:
        with open(flags.output, "w", encoding="utf-8") as stream:
            json.dump(result, stream)


def _measure(
    session: tf.compat.v1.Session, flags: argparse.Namespace, batches: list[ids.Batch]
) -> dict[str, object]:
    session.run(sok.Init(global_batch_size=flags.batch, seed=flags.seed))
    rotation = RotatingBatches(batches)
    steps, outputs = {}, {}
    for mode in MODES:
        # Each mode has its own variables, because a table in a group has one exchange mode.
        tables = [sok.EmbeddingVariable(f"{mode}_{number}", flags.dim) for number in range(flags.features)]
        lookups = [
            group.SparseLookup(table, feature.sparse, "mean", exchange=mode)
            for table, feature in zip(tables, rotation.features)
        ]
        outputs[mode] = group.lookup_group(lookups)
        loss = tf.add_n([tf.reduce_sum(output) for output in outputs[mode]])
        optimizer = tf.compat.v1.train.AdagradOptimizer(0.01)
        gradients = tf.gradients(loss, tables)
        step = optimizer.apply_gradients(zip(gradients, tables))
        steps[mode] = [tf.raw_ops.IdentityN(input=outputs[mode])[0].op, step]
    session.run(tf.compat.v1.global_variables_initializer())
    sent = {mode: _bytes_sent(session, rotation, steps[mode], len(batches)) for mode in MODES}
    timings = interleaved(session, steps, flags.rounds, flags.calls)
    return {
        "ids": ids.ids_per_step(batches),
        "unique": ids.unique_per_step(batches),
        "sent": sent,
        "timings": {mode: dataclasses.asdict(timing) for mode, timing in timings.items()},
    }


def _bytes_sent(
    session: tf.compat.v1.Session, rotation: RotatingBatches, step: Sequence[tf.Operation], count: int
) -> float:
    bytes_sent = exchange_statistics().bytes_sent
    rotation.restart(session)
    before = session.run(bytes_sent)
    for _ in range(count):
        session.run(step)
    return float(session.run(bytes_sent) - before) / count


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main(sys.argv[1:])
