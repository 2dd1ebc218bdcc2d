"""Trains an embedding variable and a tf.Variable with the same rows, each with its own optimizer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Callable

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from device_of_tests import ON_GPU, sized
from same_length import zip_equal
from sparse_operation_kit.optimizers.known_optimizer import KnownOptimizer
from sparse_operation_kit.optimizers.mapping import known_optimizers

ROWS = 60
DIM = 5
BATCH = 24
STEPS = sized(on_cpu=30, on_gpu=12)

# Keras of TensorFlow 1.15 makes no slots for reference variables.
resource = functools.partial(tf.compat.v1.Variable, use_resource=True)

MakeOptimizer = Callable[[tf.Tensor], object]


@dataclasses.dataclass
class Twins:
    """A model on a table and the same model on a tf.Variable, in the default graph.

    Each has its own table, dense layer and optimizer, and gets the same batches. Row i of the tf.Variable
    corresponds to the row of keys[i].
    """

    keys: np.ndarray
    positions: tf.Tensor
    labels: tf.Tensor
    learning_rate: tf.Tensor
    table: sok.EmbeddingVariable
    rows: tf.Variable
    table_dense: tf.Variable
    rows_dense: tf.Variable
    table_loss: tf.Tensor
    rows_loss: tf.Tensor

    def read(self, session: tf.compat.v1.Session) -> tuple[np.ndarray, np.ndarray]:
        """(all rows of the table, all rows of the tf.Variable)."""
        return session.run([self.table_rows, self.rows])

    def __post_init__(self):
        self.table_rows = tf.nn.embedding_lookup(self.table, self.keys)

    def start(self, session: tf.compat.v1.Session) -> None:
        """Initializes everything and copies the table's initial rows."""
        harness.initialize(session)
        self.rows.load(session.run(self.table_rows), session)

    def feed(self, positions: np.ndarray, labels: np.ndarray, learning_rate: float = 0.05) -> dict:
        """The feed of one step."""
        return {self.positions: positions, self.labels: labels, self.learning_rate: learning_rate}


def make_twins() -> Twins:
    """Builds the two models."""
    rng = np.random.default_rng(0)
    keys = rng.integers(-(2**63), 2**63 - 1, ROWS, dtype=np.int64)
    positions = tf.compat.v1.placeholder(tf.int64, [None])
    labels = tf.compat.v1.placeholder(tf.float32, [None])
    learning_rate = tf.compat.v1.placeholder(tf.float32, [])
    table = sok.EmbeddingVariable(
        name="table", dim=DIM, initializer=tf.compat.v1.random_normal_initializer(stddev=0.3)
    )
    plain = resource(np.zeros([ROWS, DIM], np.float32), name="rows")
    dense = rng.standard_normal([DIM, 1]).astype(np.float32)
    table_dense, rows_dense = (resource(dense, name=name) for name in ("table_dense", "rows_dense"))
    table_loss = _loss(tf.nn.embedding_lookup(table, tf.gather(keys, positions)), table_dense, labels)
    rows_loss = _loss(tf.nn.embedding_lookup(plain, positions), rows_dense, labels)
    return Twins(
        keys, positions, labels, learning_rate, table, plain, table_dense, rows_dense, table_loss, rows_loss
    )


def _loss(embeddings: tf.Tensor, dense: tf.Variable, labels: tf.Tensor) -> tf.Tensor:
    prediction = tf.squeeze(tf.matmul(tf.sin(embeddings) + embeddings, dense), axis=1)
    return tf.reduce_mean(tf.square(prediction - labels))


def batches(steps: int, distinct: bool = False, seed: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    """Skewed batches of (positions, labels); the last row is never touched, others often in a batch."""
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, ROWS)
    frequency /= frequency.sum()
    return [
        (
            rng.choice(ROWS - 1, BATCH, p=frequency, replace=not distinct),
            rng.standard_normal(BATCH).astype(np.float32),
        )
        for _ in range(steps)
    ]


def entries_and_rules() -> list[tuple[KnownOptimizer, str]]:
    """The optimizers of the registry with the rules of each; on a GPU, where rules run, each rule once."""
    pairs = [(entry, rule) for entry in known_optimizers() for rule in entry.rules]
    return list({rule: (entry, rule) for entry, rule in reversed(pairs)}.values()) if ON_GPU else pairs


def train(optimizer: object, loss: tf.Tensor, variables: Sequence[tf.Variable]) -> tf.Operation:
    """The train op of a Keras or TensorFlow optimizer."""
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return optimizer.minimize(loss, var_list=list(variables))
    return tf.group(optimizer.get_updates(loss, list(variables)))


def deviation(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the largest entry."""
    return float(np.max(np.abs(got - want)) / np.max(np.abs(want)))


def rows_after_each(
    make_optimizer: Callable[[], object], sequences: Sequence[Sequence[float]]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Trains rows of ones with each sequence of gradients, from new, on a table and a tf.Variable.

    Returns:
      For each sequence (float32 [steps], float32 [steps]): the first element of the table's row and of the
      tf.Variable's.
    """
    with harness.graph_and_session() as session:
        gradient = tf.compat.v1.placeholder(tf.float32, [])
        table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
        plain = resource(tf.ones([1, 2]))
        rows = tf.nn.embedding_lookup(table, [3]), tf.nn.embedding_lookup(plain, [0])
        with tf.control_dependencies(rows):
            step = tf.group(
                *[
                    train(make_optimizer(), tf.reduce_sum(row) * gradient, [variable])
                    for row, variable in zip_equal(rows, (table, plain))
                ]
            )
        initializers = tf.compat.v1.global_variables_initializer()

        def train_from_new(gradients: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
            session.run(initializers)
            values = []
            for value in gradients:
                session.run(step, {gradient: value})
                values.append([row[0, 0] for row in session.run(rows)])
            return tuple(np.array(values).T)

        return [train_from_new(gradients) for gradients in sequences]


def worst_deviation(
    make_optimizer: MakeOptimizer,
    make_reference: MakeOptimizer | None = None,
    steps: int = STEPS,
    read_each_step: bool = False,
    dense: bool = True,
    distinct: bool = False,
) -> float:
    """Trains twins; returns the largest `deviation` of the table's rows, or of its dense layer at the end.

    Args:
      make_optimizer: given a learning rate (a tensor that changes from step to step), makes the table's
        optimizer.
      make_reference: makes the tf.Variable's optimizer; the same by default.
      steps: the number of training steps.
      read_each_step: whether to compare the rows after each step; otherwise they are read at the end only.
      dense: whether the dense layers are trained too.
      distinct: whether each id occurs in a batch at most once.
    """
    with harness.graph_and_session() as session:
        twins = make_twins()
        table_variables = [twins.table, twins.table_dense] if dense else [twins.table]
        rows_variables = [twins.rows, twins.rows_dense] if dense else [twins.rows]
        step = tf.group(
            train(make_optimizer(twins.learning_rate), twins.table_loss, table_variables),
            train((make_reference or make_optimizer)(twins.learning_rate), twins.rows_loss, rows_variables),
        )
        twins.start(session)
        before = session.run(twins.rows)
        worst = 0.0
        for number, (positions, labels) in enumerate(batches(steps, distinct)):
            rate = 0.05 * (1.0 + 0.5 * np.sin(number))
            session.run(step, twins.feed(positions, labels, rate))
            if read_each_step:
                worst = max(worst, deviation(*twins.read(session)))
        got, want = twins.read(session)
        got_dense, want_dense = session.run([twins.table_dense, twins.rows_dense])
        assert np.max(np.abs(want - before)) > 1e-2, "the reference was not trained"
        return max(worst, deviation(got, want), deviation(got_dense, want_dense))
