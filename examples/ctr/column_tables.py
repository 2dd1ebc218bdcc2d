"""SOK's tables with feature columns: a column for each slot, and a group for each part of a model."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from ctr.schema import Batch, Schema
from ctr.tables import INITIAL_RANGE, SokTables


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
        from sparse_operation_kit.feature_columns import (
            categorical_column_with_embedding,
            group_embedding_column_scope,
        )

        # `input_layer` sorts its columns by name.
        features = {f"{name}_{slot:03d}": ids for slot, ids in enumerate(bags)}
        uniform = tf.compat.v1.random_uniform_initializer(-INITIAL_RANGE, INITIAL_RANGE)
        with group_embedding_column_scope(name):
            columns = [
                tf.feature_column.embedding_column(
                    categorical_column_with_embedding(key, tf.int64), dim, "mean", uniform
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
