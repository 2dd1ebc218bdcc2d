"""ConcatOneHotEmbedding: the tables of many one-hot features as one table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.ids import as_ids, count, unless
from sparse_operation_kit.dist_model_parallel.keras import Layer


class ConcatOneHotEmbedding(Layer):
    """A Keras layer with a table for each of several features, all of one width, looked up in one gather.

    The tables are the parts of one variable, in the order of the features. The layer takes ids
    `[…, features]`, of any integer dtype, and returns `[…, features, embedding_width]`. An id outside its
    feature's table raises an InvalidArgumentError that names the layer, the feature and the id when the layer
    runs. Gradients are `tf.IndexedSlices`.

    Attributes:
      params: the variable, float32 `[sum of feature_sizes, embedding_width]`.
      feature_sizes, embedding_width: the arguments.
      input_dim, output_dim, combiner: the variable's rows and columns, and None, as in `Embedding`.
    """

    def __init__(self, feature_sizes: Sequence[int], embedding_width: int, **kwargs: Any) -> None:
        """Creates the layer and its variable.

        Args:
          feature_sizes: rows of each feature's table.
          embedding_width: floats of a row.
          **kwargs: arguments of every Keras layer: `name`, `trainable`.

        Raises:
          TypeError, ValueError: an argument is of the wrong type or out of range.
        """
        kwargs.setdefault("dtype", tf.float32)
        super().__init__(**kwargs)
        who = f"ConcatOneHotEmbedding layer '{self.name}'"
        self.feature_sizes = [count(size, f"{who}: a feature's size") for size in feature_sizes]
        if not self.feature_sizes:
            raise ValueError(f"{who}: feature_sizes is empty")
        self.embedding_width = count(embedding_width, f"{who}: embedding_width")
        self.input_dim, self.output_dim, self.combiner = sum(self.feature_sizes), self.embedding_width, None
        self._first_rows = [0, *itertools.accumulate(self.feature_sizes[:-1])]
        self.params = self.add_weight(
            name="params", shape=[self.input_dim, self.output_dim], dtype=tf.float32, use_resource=True
        )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The rows of ids `[…, features]`: `[…, features, embedding_width]`."""
        return tf.nn.embedding_lookup(self.params, self.rows_of(inputs))

    def rows_of(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of `params`, int64, for ids `[…, features]`, of the same shape.

        Raises:
          TypeError: ids are not numbers.
          ValueError: the last dimension is not known to be the number of features.
        """
        who = f"ConcatOneHotEmbedding layer '{self.name}'"
        ids = tf.cast(as_ids(tf.convert_to_tensor(ids), who), tf.int64)
        features = len(self.feature_sizes)
        if not ids.shape.rank or ids.shape[-1] != features:
            raise ValueError(f"{who} takes ids of shape [batch, {features}], not {ids.shape}")
        sizes = tf.constant(self.feature_sizes, tf.int64)
        outside = tf.logical_or(ids < 0, ids >= sizes)
        # The first id that is outside. The padding makes sure that there is one, even in an empty batch.
        place = tf.argmax(tf.pad(tf.cast(tf.reshape(outside, [-1]), tf.uint8), [[0, 1]], constant_values=1))
        feature = place % features
        message = [
            f"{who}: id ",
            tf.strings.as_string(tf.pad(tf.reshape(ids, [-1]), [[0, 1]])[place]),
            " of feature ",
            tf.strings.as_string(feature),
            " is not in [0, ",
            tf.strings.as_string(sizes[feature]),
            ")",
        ]
        holds = tf.logical_not(tf.reduce_any(outside))
        return unless(holds, message, ids + tf.constant(self._first_rows, tf.int64))

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """The output's shape for an input of shape `input_shape`."""
        return tf.TensorShape(input_shape).concatenate([self.embedding_width])

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments, for `from_config`."""
        config = super().get_config()
        return {**config, "feature_sizes": self.feature_sizes, "embedding_width": self.embedding_width}
