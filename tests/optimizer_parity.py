"""Trains an embedding variable and a tf.Variable with the same rows, each with its own optimizer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Container, Sequence
from typing import Callable

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from device_of_tests import ON_GPU, sized
from sparse_operation_kit.optimizers.known_optimizer import KnownOptimizer
from sparse_operation_kit.optimizers.mapping import known_optimizers

ROWS = 60
DIM = 5
BATCH = 24
STEPS = sized(on_cpu=30, on_gpu=12)
EACH = range(1000)  # for `worst_deviation`: rows are compared after each step

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


def batches_and_rates(
    steps: int = STEPS, distinct: bool = False
) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """`batches` with learning rates that change from step to step."""
    of_steps = enumerate(batches(steps, distinct))
    return [(*batch, 0.05 * (1.0 + 0.5 * np.sin(number))) for number, batch in of_steps]


def worst_deviation(
    make_optimizer: MakeOptimizer,
    make_reference: MakeOptimizer | None = None,
    fed: Sequence[tuple[np.ndarray, np.ndarray, float]] | None = None,
    reads: Container[int] = (),
    dense: bool = True,
) -> float:
    """Trains twins; returns the largest `deviation` of the table's rows, or of its dense layer at the end.

    Args:
      make_optimizer: given a learning rate (a tensor that changes from step to step), makes the table's
        optimizer.
      make_reference: makes the tf.Variable's optimizer; the same by default.
      fed: positions, labels and learning rate of each step; `batches_and_rates()` by default.
      reads: the steps after which the rows are compared too; otherwise they are read at the end only.
      dense: whether the dense layers are trained too.
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
        for number, of_step in enumerate(batches_and_rates() if fed is None else fed):
            session.run(step, twins.feed(*of_step))
            if number in reads:
                worst = max(worst, deviation(*twins.read(session)))
        got, want = twins.read(session)
        got_dense, want_dense = session.run([twins.table_dense, twins.rows_dense])
        assert np.max(np.abs(want - before)) > 1e-3, "the reference was not trained"
        return max(worst, deviation(got, want), deviation(got_dense, want_dense))
