"""Embedding tables: SOK's, with its layers or feature columns, or plain TensorFlow variables for comparison.

All take 64-bit ids, have the same distribution of initial values (uniform in [-0.05, 0.05]), and return the
same shapes.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ctr.batches import Batch, Schema
from ctr.ranks import Ranks

INITIAL_RANGE = 0.05


def next_seed() -> int:
    """The seed of the next random op: the number of earlier calls in the current graph.

    The op combines it with the graph's seed. An op without a seed would get the same one from TensorFlow 2,
    but from TensorFlow 1.15 the number of all ops in the graph. That number differs between one rank and
    several, so initial weights would too.
    """
    seeds = tf.compat.v1.get_collection_ref("ctr_seeds")
    seeds.append(len(seeds))
    return seeds[-1]


@dataclasses.dataclass(frozen=True)
class Records:
    """How SOK's tables keep a row: see docs/row-types.md and docs/tables-on-disk.md."""

    row_dtype: tf.DType = tf.float32
    slot_dtype: tf.DType = tf.float32
    rounding: str = "stochastic"
    second_moment: str = "element"  # of LazyAdam
    storage: Any = None  # a `StorageOption`; None for all rows in memory

    def of_layer(self) -> dict[str, Any]:
        """The arguments of SOK's layers."""
        memory = {} if self.storage is None else {"memory": self.storage}
        return {"row_dtype": self.row_dtype, **memory, **self._others()}

    def of_option(self) -> dict[str, Any]:
        """The arguments of `sok.EmbeddingVariableOption`."""
        storage = {} if self.storage is None else {"storage_option": self.storage}
        return {"value_dtype": self.row_dtype, **storage, **self._others()}

    def _others(self) -> dict[str, Any]:
        return {"slot_dtype": self.slot_dtype, "rounding": self.rounding}


_STOCK: dict[str, Callable[[float], Any]] = {
    "adam": lambda rate: tf.compat.v1.train.AdamOptimizer(rate),
    "sgd": lambda rate: tf.compat.v1.train.GradientDescentOptimizer(rate),
    "momentum": lambda rate: tf.compat.v1.train.MomentumOptimizer(rate, momentum=0.9),
    "adagrad": lambda rate: tf.compat.v1.train.AdagradOptimizer(rate),
    "rmsprop": lambda rate: tf.compat.v1.train.RMSPropOptimizer(rate),
    "ftrl": lambda rate: tf.compat.v1.train.FtrlOptimizer(rate),
}

OPTIMIZERS = ("lazy_adam",) + tuple(_STOCK)


def make_stock_optimizer(name: str, learning_rate: float) -> Any:
    """TensorFlow's optimizer of that name. For lazy_adam it is Adam, which is equal on dense weights."""
    return _STOCK["adam" if name == "lazy_adam" else name](learning_rate)


class Tables(abc.ABC):
    """Makes embedding tables, looks up ids in them, and trains them together with the dense weights.

    Each call of a lookup method makes its own table.
    """

    @abc.abstractmethod
    def prepare(self, session: tf.compat.v1.Session) -> None:
        """Must be called before variables are initialized."""

    @abc.abstractmethod
    def one_hot(self, name: str, ids: tf.Tensor, dim: int, training: tf.Tensor) -> tf.Tensor:
        """float32 [batch, slots, dim] for int64 ids [batch, slots]."""

    @abc.abstractmethod
    def multi_hot(
        self, name: str, ids: tf.Tensor, present: tf.Tensor, dim: int, training: tf.Tensor
    ) -> tf.Tensor:
        """float32 [batch, slots, dim]: the mean over those ids [batch, slots, max_nnz] that are present.

        Zeros for a slot without ids.
        """

    def embed(
        self, name: str, batch: Batch, schema: Schema, dim: int, training: tf.Tensor
    ) -> list[tf.Tensor]:
        """The embeddings of all slots, one-hot first: tensors [batch, slots, dim] to concatenate."""
        parts = [self.one_hot(f"{name}_one_hot", batch["one_hot"], dim, training)]
        if schema.multi_hot:
            ids, present = batch["multi_hot"], batch["multi_hot_present"]
            parts.append(self.multi_hot(f"{name}_multi_hot", ids, present, dim, training))
        return parts

    @abc.abstractmethod
    def train(self, loss: tf.Tensor, optimizer: str, learning_rate: float) -> tf.Operation:
        """A step with one of `OPTIMIZERS`, which minimizes the sum of `loss` over ranks."""

    def rows_by_server(self) -> list[tf.Tensor]:
        """The number of rows on each parameter server, of tables that grow; scalars of int64."""
        return []

    def hits_and_misses(self) -> list[tf.Tensor]:
        """Of tables with a disk, how many rows that were needed were in memory, and how many not."""
        return []

    @abc.abstractmethod
    def broadcast(self) -> tf.Operation:
        """Sets variables of which each rank has a copy to the values on the first rank."""


def _present_as_sparse(ids: tf.Tensor, present: tf.Tensor) -> tf.SparseTensor:
    """A SparseTensor [batch * slots, max_nnz] of those ids [batch, slots, max_nnz] that are present."""
    shape = tf.shape(ids, out_type=tf.int64)
    flat_shape = tf.stack([shape[0] * shape[1], shape[2]])
    flat_present = tf.reshape(present, flat_shape)
    return tf.SparseTensor(
        tf.where(flat_present), tf.boolean_mask(tf.reshape(ids, flat_shape), flat_present), flat_shape
    )


class SokTables(Tables):
    """SOK's hash tables, for any number of 64-bit ids. An id gets its row at its first training lookup."""

    def __init__(self, global_batch_size: int, seed: int, records: Records = Records()) -> None:
        # Imported here, so that TensorFlowTables can be used without SOK.
        import sparse_operation_kit as sok

        self._sok = sok
        self._init = sok.Init(global_batch_size=global_batch_size, seed=seed)
        self._records = records

    def prepare(self, session: tf.compat.v1.Session) -> None:
        """See Tables.prepare."""
        session.run(self._init)

    def one_hot(self, name: str, ids: tf.Tensor, dim: int, training: tf.Tensor) -> tf.Tensor:
        """See Tables.one_hot."""
        layer = self._sok.All2AllDenseEmbedding(
            max_vocabulary_size_per_gpu=None,
            embedding_vec_size=dim,
            slot_num=ids.shape[1],
            nnz_per_slot=1,
            name=name,
            **self._records.of_layer(),
        )
        return layer(ids[:, :, tf.newaxis], training=training)[:, :, 0, :]

    def multi_hot(
        self, name: str, ids: tf.Tensor, present: tf.Tensor, dim: int, training: tf.Tensor
    ) -> tf.Tensor:
        """See Tables.multi_hot."""
        layer = self._sok.DistributedEmbedding(
            combiner="mean",
            max_vocabulary_size_per_gpu=None,
            embedding_vec_size=dim,
            slot_num=ids.shape[1],
            max_nnz=ids.shape[2],
            name=name,
            **self._records.of_layer(),
        )
        return layer(_present_as_sparse(ids, present), training=training)

    def train(self, loss: tf.Tensor, optimizer: str, learning_rate: float) -> tf.Operation:
        """See Tables.train. Tables and dense weights have separate optimizers and share the backward pass."""
        variables = tf.compat.v1.trainable_variables()
        tables, weights = self._sok.split_embedding_variable_from_others(variables)
        gradients = tf.gradients(loss, [*tables, *weights])
        if optimizer == "lazy_adam":
            table_optimizer = self._sok.tf.keras.optimizers.LazyAdamOptimizer(
                learning_rate, second_moment=self._records.second_moment
            )
        else:
            table_optimizer = make_stock_optimizer(optimizer, learning_rate)
        # Tables sum the gradients of all ranks themselves. Each rank has the weights, whose gradients are
        # summed here.
        weight_optimizer = self._sok.DistributedOptimizer(
            make_stock_optimizer(optimizer, learning_rate), op="sum"
        )
        summed = weight_optimizer.combine_gradients(zip(gradients[len(tables) :], weights))
        return tf.group(
            table_optimizer.apply_gradients(list(zip(gradients, tables))),
            weight_optimizer.apply_gradients(summed),
        )

    def rows_by_server(self) -> list[tf.Tensor]:
        """See Tables.rows_by_server."""
        tables, _ = self._sok.split_embedding_variable_from_others(tf.compat.v1.trainable_variables())
        return [tf.add_n([part.size() for part in parts]) for parts in zip(*tables)]

    def hits_and_misses(self) -> list[tf.Tensor]:
        """See Tables.hits_and_misses."""
        if self._records.storage is None:
            return []
        numbers = self._sok.table_statistics().values()
        return [
            tf.add_n([getattr(one, name) for one in numbers]) for name in ("memory_hits", "memory_misses")
        ]

    def broadcast(self) -> tf.Operation:
        """See Tables.broadcast. Rows of tables need no broadcast, as each has one owner."""
        return self._sok.broadcast_global_variables(root_rank=0)


class TensorFlowTables(Tables):
    """`tf.Variable` tables with a fixed number of rows; an id's row is the id modulo that number.

    Several ids may share a row; with too few rows, this reduces accuracy.
    """

    def __init__(self, rows: int, ranks: Ranks | None = None) -> None:
        """Each rank has all `rows`. Without `ranks`, there is one rank."""
        self._rows = rows
        self._ranks = ranks or Ranks()

    def prepare(self, session: tf.compat.v1.Session) -> None:
        """Does nothing."""

    def _table(self, name: str, dim: int) -> tf.Variable:
        initializer = tf.compat.v1.random_uniform_initializer(-INITIAL_RANGE, INITIAL_RANGE, seed=next_seed())
        return tf.compat.v1.get_variable(
            f"{name}/table", [self._rows, dim], initializer=initializer, use_resource=True
        )

    def one_hot(self, name: str, ids: tf.Tensor, dim: int, training: tf.Tensor) -> tf.Tensor:
        """See Tables.one_hot."""
        return tf.nn.embedding_lookup(self._table(name, dim), tf.math.floormod(ids, self._rows))

    def multi_hot(
        self, name: str, ids: tf.Tensor, present: tf.Tensor, dim: int, training: tf.Tensor
    ) -> tf.Tensor:
        """See Tables.multi_hot."""
        # floormod first: `safe_embedding_lookup_sparse` drops negative ids, and hashes may be negative.
        rows = _present_as_sparse(tf.math.floormod(ids, self._rows), present)
        bags = tf.nn.safe_embedding_lookup_sparse([self._table(name, dim)], rows, combiner="mean")
        return tf.reshape(bags, [-1, ids.shape[1], dim])

    def train(self, loss: tf.Tensor, optimizer: str, learning_rate: float) -> tf.Operation:
        """See Tables.train."""
        variables = tf.compat.v1.trainable_variables()
        gradients = [
            self._ranks.sum(gradient, f"gradient_{number}")
            for number, gradient in enumerate(tf.gradients(loss, variables))
        ]
        return make_stock_optimizer(optimizer, learning_rate).apply_gradients(list(zip(gradients, variables)))

    def broadcast(self) -> tf.Operation:
        """See Tables.broadcast."""
        return self._ranks.broadcast(tf.compat.v1.global_variables())


class ColumnTables(SokTables):
    """Embedding columns over embedding variables, looked up by `input_layer`. Each slot has its own table.

    `input_layer` does not distinguish evaluation from training: ids that occur only in held-out samples get
    rows too, which keep their initial values.
    """

    def one_hot(self, name: str, ids: tf.Tensor, dim: int, training: tf.Tensor) -> tf.Tensor:
        """See Tables.one_hot."""
        return self._input_layer(name, _bags_of_one(ids), dim)

    def multi_hot(
        self, name: str, ids: tf.Tensor, present: tf.Tensor, dim: int, training: tf.Tensor
    ) -> tf.Tensor:
        """See Tables.multi_hot."""
        return self._input_layer(name, _bags(ids, present), dim)

    def embed(
        self, name: str, batch: Batch, schema: Schema, dim: int, training: tf.Tensor
    ) -> list[tf.Tensor]:
        """See Tables.embed."""
        bags = _bags_of_one(batch["one_hot"])
        if schema.multi_hot:
            bags += _bags(batch["multi_hot"], batch["multi_hot_present"])
        return [self._input_layer(name, bags, dim)]

    def _input_layer(self, name: str, bags: Sequence[tf.SparseTensor], dim: int) -> tf.Tensor:
        """float32 [batch, slots, dim]: the mean over each bag."""
        sok = self._sok
        option = sok.EmbeddingVariableOption(**self._records.of_option())
        # `input_layer` sorts its columns by name.
        features = {f"{name}_{slot:03d}": ids for slot, ids in enumerate(bags)}
        uniform = tf.compat.v1.random_uniform_initializer(-INITIAL_RANGE, INITIAL_RANGE)
        with sok.group_embedding_column_scope(name):
            columns = [
                tf.feature_column.embedding_column(
                    sok.categorical_column_with_embedding(key, tf.int64, ev_option=option),
                    dim,
                    "mean",
                    uniform,
                )
                for key in features
            ]
        flat = tf.compat.v1.feature_column.input_layer(features, columns)
        return tf.reshape(flat, [-1, len(features), dim])


def _bags_of_one(ids: tf.Tensor) -> list[tf.SparseTensor]:
    """For each slot of ids [batch, slots] a SparseTensor [batch, 1]."""
    samples = tf.shape(ids, out_type=tf.int64)[0]
    indices = tf.stack([tf.range(samples), tf.zeros([samples], tf.int64)], axis=1)
    shape = tf.stack([samples, 1])
    return [tf.SparseTensor(indices, slot, shape) for slot in tf.unstack(ids, axis=1)]


def _bags(ids: tf.Tensor, present: tf.Tensor) -> list[tf.SparseTensor]:
    """For each slot, a SparseTensor [batch, max_nnz] of the present ones of ids [batch, slots, max_nnz]."""
    shape = tf.stack([tf.shape(ids, out_type=tf.int64)[0], ids.shape[2]])
    return [
        tf.SparseTensor(tf.where(mask), tf.boolean_mask(slot, mask), shape)
        for slot, mask in zip(tf.unstack(ids, axis=1), tf.unstack(present, axis=1))
    ]
