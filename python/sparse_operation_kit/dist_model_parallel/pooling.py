"""Rows of distinct ids to outputs: a row for each id, or the combined rows of each bag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.dist_model_parallel.inputs import FlatIds


@tf.custom_gradient
def rows_at(rows: tf.Tensor, places: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """As tf.gather, but the gradient of `rows` is dense, because most of its rows are read."""

    def backward(gradient: tf.Tensor) -> tuple[tf.Tensor, None]:
        return tf.math.unsorted_segment_sum(gradient, places, tf.shape(rows)[0]), None

    return tf.gather(rows, places), backward


def combined(rows: tf.Tensor, places: tf.Tensor, inputs: Sequence[FlatIds]) -> list[tf.Tensor]:
    """Returns, for inputs whose tables have one combiner, a matrix with a row for each id, or for each bag.

    Args:
      rows: [distinct ids, columns].
      places: int32, the row of each id of all inputs, one input after another.
      inputs: the inputs.
    """
    rows = tf.ensure_shape(rows, [None, rows.shape[-1]])
    combiner = inputs[0].combiner
    if combiner is None or all(ids.is_one_hot for ids in inputs):
        counts = [tf.size(ids.values) for ids in inputs]
        outputs = rows_at(rows, places)
    else:
        counts, bags, before = [], [], tf.constant(0, tf.int64)
        for ids in inputs:
            of_input, count = ids.bags()
            bags.append(of_input + before)
            counts.append(count)
            before += count
        combine = tf.sparse.segment_sum if combiner == "sum" else tf.sparse.segment_mean
        outputs = combine(rows, places, tf.concat(bags, axis=0), num_segments=before)
    outputs.set_shape([None, rows.shape[-1]])
    return [outputs] if len(inputs) == 1 else tf.split(outputs, tf.stack(counts))
