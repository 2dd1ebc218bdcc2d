"""DLRM (Naumov et al., 2019, arXiv:1906.00091) from Keras layers, as in the original SOK's tutorial."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok
import sparse_operation_kit.dist_model_parallel as dmp
from models import keras


class SokEmbedding(keras.layers.Layer):
    """One table of this library for all categories, each of which has its own range of keys."""

    def __init__(self, vocabulary_sizes, flags):
        super().__init__()
        self._first_keys = [sum(vocabulary_sizes[:position]) for position in range(len(vocabulary_sizes))]
        layer = sok.All2AllDenseEmbedding(
            # More rows than needed, as in the original.
            max_vocabulary_size_per_gpu=int(sum(vocabulary_sizes) / 0.75),
            embedding_vec_size=flags.embedding_vec_size,
            slot_num=len(vocabulary_sizes),
            nnz_per_slot=1,
            use_hashtable=False,
        )
        # In a list, because tf_keras finds the layer's variable only there (TensorFlow with Keras 3).
        self.embedding_layers = [layer]

    def call(self, categories, training=True):
        """Returns float32 `[batch, categories, dim]` for int64 `[batch, categories]` in [0, size)."""
        (layer,) = self.embedding_layers
        return layer(categories + tf.constant(self._first_keys, tf.int64), training=training)


class TablesOverRanks(keras.layers.Layer):
    """A table for each category; tables are placed on ranks as a whole, sliced or replicated."""

    def __init__(self, vocabulary_sizes, flags):
        super().__init__()
        dim = flags.embedding_vec_size
        self._tables = dmp.DistributedEmbedding(
            [dmp.Embedding(size, dim, combiner="sum") for size in vocabulary_sizes],
            strategy=flags.strategy,
            column_slice_threshold=flags.column_slice_threshold,
            row_slice_threshold=flags.row_slice_threshold,
            data_parallel_threshold=flags.data_parallel_threshold,
        )
        self._count = len(vocabulary_sizes)

    def call(self, categories, training=True):
        """As `SokEmbedding.call`."""
        return tf.stack(self._tables(tf.split(categories, self._count, axis=1)), axis=1)


class TensorFlowEmbedding(keras.layers.Layer):
    """A Keras embedding for each category; each rank has all rows."""

    def __init__(self, vocabulary_sizes, flags):
        super().__init__()
        dim = flags.embedding_vec_size
        self._embeddings = [keras.layers.Embedding(size, dim) for size in vocabulary_sizes]

    def call(self, categories, training=True):
        """As `SokEmbedding.call`."""
        columns = tf.unstack(categories, num=len(self._embeddings), axis=1)
        vectors = [layer(column) for layer, column in zip(self._embeddings, columns)]
        return tf.stack(vectors, axis=1)


def mlp(units, last_activation):
    """Fully connected layers with ReLU between them."""
    layers = [keras.layers.Dense(width, activation="relu") for width in units[:-1]]
    return keras.Sequential([*layers, keras.layers.Dense(units[-1], activation=last_activation)])


def pair_products(vectors, count):
    """The dot product of each pair of `count` vectors: `[batch, count, dim]` to `[batch, pairs]`."""
    products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    # Not by loops in Python, which Keras would let AutoGraph of TensorFlow 1.15 convert: it cannot.
    rows, columns = np.tril_indices(count, k=-1)
    return tf.gather(products, rows * count + columns, axis=1)


EMBEDDINGS = {"SOK": SokEmbedding, "DMP": TablesOverRanks, "TF": TensorFlowEmbedding}


class Dlrm(keras.models.Model):
    """A network for the numbers, embeddings for the categories, and a network on products of all pairs."""

    def __init__(self, vocabulary_sizes, flags):
        super().__init__()
        self.embedding = EMBEDDINGS[flags.embedding_layer](vocabulary_sizes, flags)
        self._vectors = 1 + len(vocabulary_sizes)
        self._bottom = mlp([*flags.bottom_stack, flags.embedding_vec_size], "relu")
        self._top = mlp([*flags.top_stack, 1], None)

    def call(self, inputs, training=True):
        """Returns float32 `[batch]`, the logits of "numbers" `[batch, 13]` and "categories" `[batch, 26]`."""
        bottom = self._bottom(inputs["numbers"])
        embedded = self.embedding(inputs["categories"], training=training)
        vectors = tf.concat([bottom[:, tf.newaxis, :], embedded], axis=1)
        pairs = pair_products(vectors, self._vectors)
        return tf.squeeze(self._top(tf.concat([bottom, pairs], axis=1)), axis=1)
