"""Training steps with lookups a step ahead (`sok.LookupPrefetch`), and the same steps without."""

from __future__ import annotations

import numpy as np

from bench import jobs, ranks
from bench.report import Result

FLAGS = {
    **ranks.FLAGS,
    **dict(ranks=(1, 2), batch=(512, 4096), hidden=(64, 512), features=26, hotness=1, dim=16),
    **dict(rows=2_600_000, zipf=1.05, optimizer="adagrad", calls=20),
}


def measure_rank(rank: ranks.Rank) -> list[Result]:
    """Measures steps of both sides, which train the same tables and model."""
    import tensorflow as tf

    import sparse_operation_kit as sok
    from bench.session_sides import RotatingBatches, consumed, group_lookup, make_optimizer

    point, session, v1 = rank.point, rank.session, tf.compat.v1
    job = jobs.Job.of(point)
    batches = rank.batches_of_all(job)[rank.number]
    tables = [sok.EmbeddingVariable(f"table_{feature}", job.dim) for feature in range(job.features)]
    rotations = [RotatingBatches(batches) for _ in ("plain", "ahead")]
    optimizer = make_optimizer(job.optimizer)
    # Two dense layers over all rows of a sample, so that a step has work besides lookups.
    initializer = v1.random_normal_initializer(stddev=0.01, seed=1)
    weights = [
        v1.get_variable(f"weights_{number}", shape, initializer=initializer, use_resource=True)
        for number, shape in enumerate([[job.features * job.dim, point.hidden], [point.hidden, 1]])
    ]

    def look_up(rotation: RotatingBatches):
        return lambda *tensors: group_lookup(tables, rotation.features_of(tensors), job.hotness)

    def step(outputs) -> list:
        hidden = tf.nn.relu(tf.matmul(tf.concat(outputs, axis=1), weights[0]))
        loss = tf.reduce_mean(tf.square(tf.matmul(hidden, weights[1]) - 1.0))
        return [optimizer.minimize(loss), consumed(outputs)]

    plain = look_up(rotations[0])(*rotations[0].tensors)
    prefetch = sok.LookupPrefetch(rotations[1].iterator, look_up(rotations[1]))
    steps = {"plain": step(plain), "ahead": [*step(prefetch.outputs), prefetch.advance]}
    session.run(v1.global_variables_initializer())
    for rotation in rotations:
        rotation.restart(session)
    session.run(prefetch.prime)
    for number in range(len(batches)):  # both sides look up the same rows
        expected = session.run(list(plain))
        ahead, _ = session.run([list(prefetch.outputs), prefetch.advance])
        for a, b in zip(expected, ahead):
            np.testing.assert_array_equal(a, b, err_msg=f"batch {number}")
    question = {name: getattr(point, name) for name in ("ranks", "batch", "hidden")}
    return [Result(question, rank.measure(steps), "ahead", {"ids": jobs.ids_per_step(batches)})]
