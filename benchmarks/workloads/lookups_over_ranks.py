"""A group of features over ranks, compared with Horovod's plain alltoall for each feature."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np

from bench import jobs, plots, ranks
from bench.report import Result

FLAGS = {
    **ranks.FLAGS,
    **dict(transport=("mpi", "gloo"), cycle_time=(1.0, 0.1), ranks=(1, 2, 4), threads=1, calls=10),
    **dict(features=26, batch=4096, dim=16, rows=2_600_000, zipf=1.05, optimizer="adagrad"),
}
_TOLERANCE = 1e-5
# Words of 8 bytes: a message's header, and what a request has for each table.
_WORD, _HEADER, _PER_TABLE = 8, 4, 4


def draw(path: pathlib.Path, results: Sequence[Result]) -> None:
    """Draws milliseconds per step."""
    steps = [result for result in results if result.question["what"] == "step"]
    plots.bars(path, plots.panels_of(steps, ()), "ms per training step")


def measure_rank(rank: ranks.Rank) -> list[Result]:
    """Measures forward lookups and steps of all sides, on each rank."""
    import tensorflow as tf

    import sparse_operation_kit as sok
    from bench.session_sides import RotatingBatches, group_lookup, make_optimizer, targets_of

    point, session, job = rank.point, rank.session, jobs.Job.of(rank.point)
    by_rank = rank.batches_of_all(job)
    rotation = RotatingBatches(by_rank[rank.number])
    gradients = [tf.ones([job.batch // rank.size, job.dim])] * job.features
    tables = [sok.EmbeddingVariable(f"sok_{feature}", job.dim) for feature in range(job.features)]
    # Row i of a table is row i // size of rank i % size.
    values = [job.row_values(feature) for feature in range(job.features)]
    shards = [
        tf.compat.v1.get_variable(
            f"plain_{feature}", initializer=rows[rank.number :: rank.size], use_resource=True
        )
        for feature, rows in enumerate(values)
    ]
    outputs, forward = (group_lookup(tables, rotation.features, 1, training=train) for train in (True, False))
    sides = {"sok": targets_of(outputs, forward, tables, gradients, make_optimizer(job.optimizer))}
    optimizer = make_optimizer(job.optimizer)
    for side in ("plain", "unique"):
        outputs = [
            _look_up(shard, feature.ids, f"{side}_{number}", side == "unique")
            for number, (shard, feature) in enumerate(zip(shards, rotation.features))
        ]
        sides[side] = targets_of(outputs, outputs, shards, gradients, optimizer)
    session.run(tf.compat.v1.global_variables_initializer())
    saver = sok.Saver()
    for table, rows in zip(tables, values):
        session.run(saver.load_embedding_values(table, rows))
    _check(session, rotation, job.batches, sides)
    counts = {"exchanges": 0.0, "sent": 0.0}
    if rank.size > 1:
        exchanged = rank.exchanged(sides["sok"].step, rotation.restart)
        counts = {"exchanges": exchanged["exchanges"], "sent": exchanged["bytes_sent"]}
    counts["formula"] = bytes_sent(by_rank, rank.number, job.dim)
    whats = ("forward", "step")
    timings = rank.measure(
        {f"{side} {what}": getattr(targets, what) for what in whats for side, targets in sides.items()}
    )
    question = {
        name: getattr(point, name) for name in ("transport", "cycle_time", "ranks", "features", "dim")
    }
    counts.update(
        ids=jobs.ids_per_step(by_rank[rank.number]), unique=jobs.unique_per_step(by_rank[rank.number])
    )
    return [
        Result({**question, "what": what}, {side: timings[f"{side} {what}"] for side in sides}, "sok", counts)
        for what in whats
    ]


def _look_up(shard, ids, name: str, unique: bool):
    """Looks up with two alltoalls: sends ids to owners and gets rows back. A third is the second's gradient.

    Models without a sparse library are written like this, with or without `tf.unique`.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    if unique:
        distinct, inverse = tf.unique(ids)
        return tf.gather(_look_up(shard, distinct, name, False), inverse)
    size = hvd.size()
    owner = tf.cast(tf.math.floormod(ids, size), tf.int32)
    by_owner = tf.argsort(owner, stable=True)
    splits = tf.math.bincount(owner, minlength=size, maxlength=size)
    asked, asked_splits = hvd.alltoall(tf.gather(ids, by_owner), splits=splits, name=f"{name}_ids")
    rows, _ = hvd.alltoall(
        tf.gather(shard, asked // size), splits=tf.ensure_shape(asked_splits, [size]), name=f"{name}_rows"
    )
    # From the order of owners to the order of ids.
    return tf.gather(rows, tf.math.invert_permutation(by_owner))


def _check(session, rotation, count: int, sides) -> None:
    """Checks that all sides give the same outputs, before and after a step on each batch."""

    def run(targets) -> list:
        rotation.restart(session)
        return [session.run(list(targets)) for _ in range(count)]

    for when in ("before training", "after training"):
        expected = run(sides["sok"].outputs)
        for side in ("plain", "unique"):
            for a, b in zip(expected, run(sides[side].outputs)):
                np.testing.assert_allclose(a, b, rtol=0, atol=_TOLERANCE, err_msg=f"{side}, {when}")
        if when == "before training":
            for side in ("sok", "plain"):  # "unique" has the tables of "plain"
                run(sides[side].step)


def bytes_sent(by_rank: list[list[jobs.Batch]], rank: int, dim: int) -> float:
    """Bytes that `rank` sends to other ranks in a step, on average, by the formula in docs/design.md.

    Step i looks up batch i of every rank.
    """
    size, words = len(by_rank), 0
    for batches in zip(*by_rank):
        for other in range(size):
            if other == rank:
                continue
            asked, served = _distinct(batches[rank], other, size), _distinct(batches[other], rank, size)
            words += 3 * _HEADER + _PER_TABLE * len(batches[0]) + asked + 1
            # Two floats to a word.
            words += (served * dim + 1) // 2 + (asked * dim + 1) // 2
    return words * _WORD / len(by_rank[0])


def _distinct(batch: jobs.Batch, owner: int, size: int) -> int:
    """The ids that a rank asks `owner` for."""
    return sum(int(np.count_nonzero(np.unique(bags.ids) % size == owner)) for bags in batch)
