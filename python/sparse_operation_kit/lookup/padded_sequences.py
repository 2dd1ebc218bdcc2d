"""Lookups of sequences: the rows of each sample's ids side by side, padded with zeros."""

from __future__ import annotations

from typing import Any, Union

import tensorflow as tf

from sparse_operation_kit.lookup import ordinary

Ids = Union[tf.SparseTensor, tf.RaggedTensor]


def pad_sequences(ids: Ids, weights: Any, rows: tf.Tensor, who: str) -> tf.Tensor:
    """Returns the rows of ids in the ids' places.

    Args:
      ids: Sequences `[batch, steps]`. The steps of a RaggedTensor are those of its longest sequence.
      weights: None, or a tensor of the same kind as `ids`, with whose values the rows are multiplied. NaN,
        infinity, and weights at other positions than the ids raise an error when the graph runs.
      rows: `[number of ids, dim]`, in the order of `ids.values`.
      who: The beginning of error messages.

    Returns:
      `[batch, steps, dim]`, zeros where there is no id.
    """
    if weights is not None:
        weights = ordinary.checked_weights(weights, ids, who)
        rows = rows * tf.cast(weights.values, rows.dtype)[:, tf.newaxis]
    if isinstance(ids, tf.RaggedTensor):
        output = ids.with_values(rows).to_tensor()
        batch, steps = ids.shape[0], None
    else:
        dim = tf.constant([rows.shape[1]], tf.int64)
        output = tf.scatter_nd(ids.indices, rows, tf.concat([ids.dense_shape, dim], axis=0))
        batch, steps = ids.shape.as_list() if ids.shape.rank == 2 else (None, None)
    output.set_shape([batch, steps, rows.shape[1]])
    return output
