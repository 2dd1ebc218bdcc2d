"""Two answers of owners to lookups of bags over ranks: the rows of distinct ids, or sums of bags."""

from __future__ import annotations

from bench import jobs, ranks
from bench.report import Result

FLAGS = {
    **ranks.FLAGS,
    **dict(ranks=2, features=4, batch=2048, dim=16, rows=800_000, hotness=(2, 8, 16, 32, 64), zipf=1.05),
    "threads": 1,
}


def measure_rank(rank: ranks.Rank) -> list[Result]:
    """Measures steps (lookup, gradient, Adagrad) in both modes, and the bytes that rank 0 sends in each."""
    import tensorflow as tf

    import sparse_operation_kit as sok
    from bench.session_sides import RotatingBatches, consumed
    from sparse_operation_kit.lookup import group

    job = jobs.Job.of(rank.point)
    batches = rank.batches_of_all(job)[rank.number]
    rotation = RotatingBatches(batches)
    steps = {}
    for mode in ("rows", "sums"):
        # Each mode has its own variables, because a table in a group has one exchange mode.
        tables = [sok.EmbeddingVariable(f"{mode}_{number}", job.dim) for number in range(job.features)]
        outputs = group.lookup_group(
            [
                group.SparseLookup(table, feature.sparse, "mean", exchange=mode)
                for table, feature in zip(tables, rotation.features)
            ]
        )
        gradients = tf.gradients(tf.add_n([tf.reduce_sum(output) for output in outputs]), tables)
        update = tf.compat.v1.train.AdagradOptimizer(0.01).apply_gradients(zip(gradients, tables))
        steps[mode] = [consumed(outputs), update]
    rank.session.run(tf.compat.v1.global_variables_initializer())
    counts = {
        f"MB sent, {mode}": rank.exchanged(step, rotation.restart)["bytes_sent"] / 1e6
        for mode, step in steps.items()
    }
    counts["unique of ids"] = jobs.unique_per_step(batches) / jobs.ids_per_step(batches)
    return [Result({"ids per bag": job.hotness}, rank.measure(steps), "sums", counts)]
