"""The two sides of `feature_columns.py`: the same features and training, each in its own graph and session.

One side has TensorFlow's categorical columns over `tf.Variable` tables. The other has columns with embedding
variables, made inside one `group_embedding_column_scope`. Both use `input_layer`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok
from bench.ids import Batch
from bench.inputs import RotatingBatches
from bench.optimizers import make_optimizer
from sparse_operation_kit import feature_columns

v1 = tf.compat.v1

KINDS = ("identity", "hash")


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns that both sides have, one for each feature, all with the same settings.

    Attributes:
      kind: "identity" for int64 ids in [0, rows), or "hash" for strings.
      rows: Rows of a `tf.Variable` table; for strings, the number of hash buckets.
    """

    kind: str
    features: int
    rows: int
    dim: int
    optimizer: str
    batch: int


class ColumnsSide(abc.ABC):
    """One side. A context manager; call `start` before the other methods.

    Attributes:
      ops_in_graph: The number of TensorFlow ops that the columns, their gradients and the update add.
    """

    def __init__(self, columns: Columns, batches: Sequence[Batch], threads: int, seed: int) -> None:
        self.columns = columns
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._session = v1.Session(config=_config(threads))
            self._prepare(seed)
            self.rotation = RotatingBatches(list(batches))
            gradient = _fixed_gradient(columns, seed)
            optimizer = make_optimizer(columns.optimizer)
            before = len(self._graph.get_operations())
            dense = [self._column(f"f{feature}") for feature in range(columns.features)]
            inputs = {f"f{i}": tensors.sparse for i, tensors in enumerate(self.rotation.features)}
            created: dict = {}
            self.output = v1.feature_column.input_layer(inputs, dense, cols_to_vars=created)
            self.variables = [created[column][0] for column in dense]
            slices = tf.gradients(self.output, self.variables, grad_ys=gradient)
            update = optimizer.apply_gradients(zip(slices, self.variables))
            self.ops_in_graph = len(self._graph.get_operations()) - before
            # Fetches the output too: the update uses a given gradient, so that it does not need the lookup.
            self._step = [tf.raw_ops.IdentityN(input=[self.output])[0].op, update]
            self._initializer = v1.global_variables_initializer()

    def __enter__(self) -> ColumnsSide:
        return self

    def __exit__(self, *error: object) -> None:
        self._session.close()

    def start(self) -> None:
        """Initializes the variables and the rotation of batches."""
        self._session.run(self._initializer)
        self.rotation.restart(self._session)

    def step(self) -> None:
        """Trains on the next batch."""
        self._session.run(self._step)

    def outputs(self, count: int) -> list[np.ndarray]:
        """The output of `input_layer` for each of the first `count` batches."""
        self.rotation.restart(self._session)
        return [self._session.run(self.output) for _ in range(count)]

    def ops_of_a_step(self) -> int:
        """The number of ops in a step after TensorFlow's graph optimization, including the data pipeline."""
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        self._session.run(self._step, options=options, run_metadata=metadata)
        return sum(len(device.node_stats) for device in metadata.step_stats.dev_stats)

    def _prepare(self, seed: int) -> None:
        del seed

    @abc.abstractmethod
    def _column(self, key: str) -> object: ...


class TensorFlowColumns(ColumnsSide):
    """Identity or hash-bucket columns over `tf.Variable`s."""

    def _column(self, key: str) -> object:
        if self.columns.kind == "identity":
            ids = tf.feature_column.categorical_column_with_identity(key, self.columns.rows)
        else:
            ids = tf.feature_column.categorical_column_with_hash_bucket(key, self.columns.rows)
        uniform = v1.random_uniform_initializer(-0.05, 0.05)
        return tf.feature_column.embedding_column(ids, self.columns.dim, initializer=uniform)

    def tables(self) -> list[np.ndarray]:
        """The rows of every table."""
        return self._session.run(self.variables)


class SokColumns(ColumnsSide):
    """Columns with embedding variables, in one group."""

    def _prepare(self, seed: int) -> None:
        self._session.run(sok.Init(global_batch_size=self.columns.batch, seed=seed))

    def _column(self, key: str) -> object:
        dtype = tf.int64 if self.columns.kind == "identity" else tf.string
        with feature_columns.group_embedding_column_scope("columns"):
            ids = feature_columns.categorical_column_with_embedding(key, dtype=dtype)
            return tf.feature_column.embedding_column(ids, self.columns.dim)

    def load(self, tables: Sequence[np.ndarray]) -> None:
        """Sets the row of key i in each table to row i of the corresponding one of `tables`."""
        saver = sok.Saver()
        with self._graph.as_default():
            for variable, rows in zip(self.variables, tables):
                given = v1.placeholder(tf.float32, rows.shape)
                self._session.run(saver.load_embedding_values(variable, given), {given: rows})


def _config(threads: int) -> v1.ConfigProto:
    config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    # As in session_config.py: TensorFlow's side is slower with this pass.
    rewrites = config.graph_options.rewrite_options
    rewrites.arithmetic_optimization = type(rewrites).OFF
    return config


def _fixed_gradient(columns: Columns, seed: int) -> tf.Tensor:
    """The gradient of the output, the same on both sides."""
    values = np.random.default_rng(seed).uniform(0.5, 1.5, [columns.batch, columns.features * columns.dim])
    given = v1.get_variable(
        "gradient", initializer=values.astype(np.float32), trainable=False, use_resource=True
    )
    return given.read_value()
