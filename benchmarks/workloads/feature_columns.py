"""Training steps through `input_layer`: TensorFlow's columns, and the same over a group of our tables."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from bench import flags, jobs, timing
from bench.report import Result

_KINDS = ("identity", "hash")
FLAGS = {
    "kind": flags.Flag(flags.one_of("kind", _KINDS), "kinds of columns: " + ",".join(_KINDS), _KINDS),
    "rows": flags.Flag(flags.number(), "rows per table", 100_000),
    **dict(features=(26, 107), batch=4096, dim=16, hotness=1, zipf=1.05, optimizer="adagrad"),
    **dict(threads=2, batches=4, rounds=9, seed=1),
}
_TOLERANCE = 1e-5
# Long enough that most steps follow a step of the same side, as in training: steps of the other side evict
# this side's rows from the caches.
_TURN_MS, _MAX_CALLS = 400.0, 50


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures both sides, each in a graph and session of its own, with a column for each feature."""
    job = dataclasses.replace(jobs.Job.of(point), rows=point.rows)
    batches = job.make_batches()
    if point.kind == "hash":
        batches = [[_as_strings(bags) for bags in batch] for batch in batches]
    sides = {
        "plain": Side(job, batches, lambda key: plain_column(job, point.kind, key)),
        "grouped": Side(job, batches, lambda key: grouped_column(job, point.kind, key)),
    }
    if point.kind == "identity":
        sides["grouped"].load(sides["plain"])
        check_agreement(*sides.values())
    for side in sides.values():
        side.train()  # inserts the rows of all keys
    steps = {name: timing.contender(side.step) for name, side in sides.items()}
    timings = timing.measure(steps, point.rounds, _TURN_MS, _MAX_CALLS)
    counts = {}
    for name, side in sides.items():
        counts[f"ops in graph, {name}"] = float(side.ops_in_graph)
        counts[f"ops in step, {name}"] = float(side.ops_of_a_step())
        side.session.close()
    question = {"kind": point.kind, "features": point.features, "optimizer": point.optimizer}
    return [Result(question, timings, "grouped", counts)]


def check_agreement(plain: Side, grouped: Side) -> None:
    """Compares both sides' outputs for each batch, before and after a step on each.

    Raises:
      AssertionError: Outputs differ.
    """
    for when in ("before training", "after training"):
        for a, b in zip(plain.outputs(), grouped.outputs()):
            # Not an assert statement, which python -O removes.
            np.testing.assert_allclose(a, b, rtol=0, atol=_TOLERANCE, err_msg=when)
        if when == "before training":
            plain.train()
            grouped.train()


def _as_strings(bags: jobs.FeatureBags) -> jobs.FeatureBags:
    return dataclasses.replace(bags, ids=np.char.mod("item %d", bags.ids).astype("S"))


def plain_column(job: jobs.Job, kind: str, key: str) -> object:
    """An embedding column over a `tf.Variable`, with integers as they are or strings that are hashed."""
    import tensorflow as tf

    columns = tf.feature_column
    if kind == "identity":
        ids = columns.categorical_column_with_identity(key, job.rows)
    else:
        ids = columns.categorical_column_with_hash_bucket(key, job.rows)
    uniform = tf.compat.v1.random_uniform_initializer(-0.05, 0.05)
    return columns.embedding_column(ids, job.dim, initializer=uniform)


def grouped_column(job: jobs.Job, kind: str, key: str) -> object:
    """The same over an embedding variable, in one `group_embedding_column_scope`."""
    import tensorflow as tf

    from sparse_operation_kit import feature_columns

    dtype = tf.int64 if kind == "identity" else tf.string
    with feature_columns.group_embedding_column_scope("columns"):
        ids = feature_columns.categorical_column_with_embedding(key, dtype=dtype)
        return tf.feature_column.embedding_column(ids, job.dim)


class Side:
    """Columns in a graph and a session.

    Attributes:
      ops_in_graph: The number of TensorFlow ops that the columns, their gradients and the update add.
    """

    def __init__(self, job: jobs.Job, batches: Sequence[jobs.Batch], column: Callable[[str], object]) -> None:
        import tensorflow as tf

        import sparse_operation_kit as sok
        from bench.session_sides import RotatingBatches, consumed, make_optimizer, session_config

        tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
        self._job, self._graph = job, tf.Graph()
        with self._graph.as_default():
            self.session = tf.compat.v1.Session(config=session_config(job.threads))
            self.session.run(sok.Init(global_batch_size=job.batch, seed=job.seed))
            self._rotation = RotatingBatches(list(batches))
            rng = np.random.default_rng(job.seed)
            gradient = tf.compat.v1.get_variable(
                "gradient",  # of the output
                initializer=rng.uniform(0.5, 1.5, [job.batch, job.features * job.dim]).astype(np.float32),
                trainable=False,
                use_resource=True,
            ).read_value()
            optimizer = make_optimizer(job.optimizer)
            before = len(self._graph.get_operations())
            dense = [column(f"f{feature}") for feature in range(job.features)]
            inputs = {f"f{i}": tensors.sparse for i, tensors in enumerate(self._rotation.features)}
            created: dict = {}
            self._output = tf.compat.v1.feature_column.input_layer(inputs, dense, cols_to_vars=created)
            self._variables = [created[one][0] for one in dense]
            slices = tf.gradients(self._output, self._variables, grad_ys=gradient)
            update = optimizer.apply_gradients(zip(slices, self._variables))
            self.ops_in_graph = len(self._graph.get_operations()) - before
            # Fetches the output too: the update uses a given gradient, so that it does not need the lookup.
            self._step = [consumed([self._output]), update]
            self.session.run(tf.compat.v1.global_variables_initializer())
        self._rotation.restart(self.session)

    def step(self) -> None:
        """Trains on the next batch."""
        self.session.run(self._step)

    def train(self) -> None:
        """Makes as many steps as there are batches."""
        for _ in range(self._job.batches):
            self.step()

    def outputs(self) -> list[np.ndarray]:
        """The output of `input_layer` for each batch, from the first."""
        self._rotation.restart(self.session)
        return [self.session.run(self._output) for _ in range(self._job.batches)]

    def ops_of_a_step(self) -> int:
        """The number of ops in a step after TensorFlow's graph optimization, including the data pipeline."""
        import tensorflow as tf

        metadata = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.SOFTWARE_TRACE)
        self.session.run(self._step, options=options, run_metadata=metadata)
        return sum(len(device.node_stats) for device in metadata.step_stats.dev_stats)

    def load(self, plain: Side) -> None:
        """Sets the row of key i in each of our tables to row i of the corresponding one of `plain`."""
        import sparse_operation_kit as sok

        saver = sok.Saver()
        with self._graph.as_default():
            for variable, rows in zip(self._variables, plain.session.run(plain._variables)):
                self.session.run(saver.load_embedding_values(variable, rows))
