"""One rank of lookups_over_ranks.py: measures a group's steps and those with plain alltoalls.

Rank 0 writes its results as JSON to the path in the last argument.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok
from bench import ids, machine, rank_flags
from bench.axes import Bags, Tables
from bench.exchange_formula import bytes_sent
from bench.inputs import RotatingBatches
from bench.plain_alltoall import PlainAlltoallSide
from bench.ranks_report import Row
from bench.ranks_timing import interleaved
from bench.sides import SokSide, Targets
from sparse_operation_kit.ranks.exchange_statistics import exchange_statistics

import horovod.tensorflow as hvd  # isort: skip - after TensorFlow's flags are set

_TOLERANCE = 1e-5


def main(arguments: Sequence[str]) -> None:
    """Runs one rank."""
    flags = rank_flags.parse(arguments)
    hvd.init()
    tables = Tables(flags.features, flags.rows // flags.features, flags.dim, flags.optimizer)
    bags = Bags(flags.batch // hvd.size(), 1, flags.zipf)
    # Frequent ids are the same on all ranks; each rank has its own batches.
    of_all = ids.make_batches(
        bags, tables.features, tables.rows_per_table, flags.batches * hvd.size(), flags.seed
    )
    by_rank = [of_all[rank :: hvd.size()] for rank in range(hvd.size())]
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        row = _measure(session, flags, tables, by_rank)
    if hvd.rank() == 0:
        with open(flags.output, "w", encoding="utf-8") as stream:
            json.dump({"machine": machine.describe(), "row": dataclasses.asdict(row)}, stream)


def _measure(
    session: tf.compat.v1.Session, flags: argparse.Namespace, tables: Tables, by_rank: list[list[ids.Batch]]
) -> Row:
    session.run(sok.Init(global_batch_size=flags.batch, seed=flags.seed))
    rng = np.random.default_rng(flags.seed)
    rows = [
        rng.uniform(-0.05, 0.05, [tables.rows_per_table, tables.dim]).astype(np.float32)
        for _ in range(tables.features)
    ]
    batches = by_rank[hvd.rank()]
    rotation = RotatingBatches(batches)
    ours, theirs = SokSide(tables), PlainAlltoallSide(tables, rows)
    gradients = [tf.ones([flags.batch // hvd.size(), tables.dim]) for _ in rows]
    our_targets = ours.targets("gather", rotation.features, gradients)
    plain = theirs.targets(rotation.features, gradients, unique=False)
    unique = theirs.targets(rotation.features, gradients, unique=True)
    session.run(tf.compat.v1.global_variables_initializer())
    saver = sok.Saver()
    for variable, values in zip(ours.variables, rows):
        session.run(saver.load_embedding_values(variable, values))
    rotation.restart(session)
    _check(session, rotation, len(batches), our_targets, plain, unique)

    counted = _counted(session, rotation, len(batches), our_targets.step)
    contenders = {
        "sok forward": our_targets.forward,
        "sok step": our_targets.step,
        "plain forward": plain.forward,
        "plain step": plain.step,
        "unique forward": unique.forward,
        "unique step": unique.step,
    }
    timings = interleaved(session, contenders, flags.rounds, flags.calls)
    return Row(
        transport=flags.transport,
        cycle_time=flags.cycle_time,
        ranks=hvd.size(),
        features=tables.features,
        dim=tables.dim,
        ids=ids.ids_per_step(batches),
        unique=ids.unique_per_step(batches),
        exchanges=counted[0],
        bytes_sent=counted[1],
        bytes_by_formula=bytes_sent(by_rank, hvd.rank(), tables.dim),
        alltoalls=3 * tables.features,
        timings=timings,
    )


def _check(
    session: tf.compat.v1.Session, rotation: RotatingBatches, count: int, ours: Targets, *theirs: Targets
) -> None:
    """Checks that all sides give the same outputs, before and after a step on each batch.

    `theirs` look up the same tables, and the first of them trains these tables.
    """
    for when in ("before training", "after training"):
        expected = _outputs(session, rotation, count, ours)
        for targets in theirs:
            for a, b in zip(expected, _outputs(session, rotation, count, targets)):
                np.testing.assert_allclose(a, b, rtol=0, atol=_TOLERANCE, err_msg=when)
        if when == "before training":
            for side in (ours, theirs[0]):
                rotation.restart(session)
                for _ in range(count):
                    session.run(side.step)


def _outputs(
    session: tf.compat.v1.Session, rotation: RotatingBatches, count: int, targets: Targets
) -> list[list[np.ndarray]]:
    rotation.restart(session)
    return [session.run(list(targets.outputs)) for _ in range(count)]


def _counted(
    session: tf.compat.v1.Session, rotation: RotatingBatches, count: int, step: Sequence[tf.Operation]
) -> tuple[float, float]:
    """(exchanges, bytes sent by this rank) per step, on average over the batches."""
    if hvd.size() == 1:
        return 0.0, 0.0
    statistics = exchange_statistics()
    rotation.restart(session)
    before = session.run(statistics)
    for _ in range(count):
        session.run(step)
    after = session.run(statistics)
    exchanges = after.exchanges - before.exchanges
    bytes_sent = after.bytes_sent - before.bytes_sent
    return float(exchanges) / count, float(bytes_sent) / count


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main(sys.argv[1:])
