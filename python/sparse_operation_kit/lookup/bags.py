"""Bags of ids in SparseTensors: leaving ids out, filling empty bags, combining rows that were looked up."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.internals import variables
from sparse_operation_kit.tables import table_parts
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


def parts(params: Any) -> list[Any]:
    """Returns the parts of a variable, which may be partitioned, as a list.

    All parts of a table on parameter servers are the table.
    """
    params = table_parts.joined(params)
    if isinstance(params, (list, tuple, variables.PartitionedVariable)):
        return list(params)
    return [params]


def as_matrices(
    ids: tf.SparseTensor, weights: tf.SparseTensor | None
) -> tuple[tf.SparseTensor, tf.SparseTensor | None]:
    """Returns ids and weights with all dimensions except the last merged, and with the same indices."""
    if ids.shape.rank != 2:
        shape = tf.cast(ids.dense_shape, tf.int64)
        ids = tf.sparse.reshape(ids, tf.stack([tf.reduce_prod(shape[:-1]), shape[-1]]))
    return ids, None if weights is None else tf.SparseTensor(ids.indices, weights.values, ids.dense_shape)


def pruned(
    ids: tf.SparseTensor, weights: tf.SparseTensor | None, combiner: str | None
) -> tuple[tf.SparseTensor, tf.SparseTensor | None]:
    """Leaves out negative ids and, unless the combiner is "sum", ids with a weight <= 0."""
    keep = ids.values >= 0
    if weights is not None and combiner != "sum":
        keep = tf.logical_and(keep, weights.values > 0)
    ids = tf.sparse.retain(ids, keep)
    if weights is None:
        return ids, None
    return ids, tf.SparseTensor(ids.indices, tf.boolean_mask(weights.values, keep), ids.dense_shape)


def filled(
    ids: tf.SparseTensor, weights: tf.SparseTensor | None, default_id: int
) -> tuple[tf.SparseTensor, tf.SparseTensor | None]:
    """Returns ids and weights with `default_id` of weight 1 in each row that has no id."""
    full, _ = tf.sparse.fill_empty_rows(ids, tf.cast(default_id, ids.dtype))
    if weights is None:
        return full, None
    of_ids, _ = tf.sparse.fill_empty_rows(weights, tf.ones([], weights.dtype))
    return full, tf.SparseTensor(full.indices, of_ids.values, full.dense_shape)


def with_leading_dimensions(rows: tf.Tensor, ids: tf.SparseTensor) -> tf.Tensor:
    """Returns rows [d0 * ... * dn-1, dim] of ids [d0, ..., dn] as [d0, ..., dn-1, dim]."""
    if ids.shape.rank == 2:
        return rows
    leading = tf.cast(ids.dense_shape[:-1], tf.int32)
    result = tf.reshape(rows, tf.concat([leading, tf.shape(rows)[1:]], axis=0))
    if ids.shape.rank is not None:
        result.set_shape(ids.shape[:-1].concatenate(rows.shape[1:]))
    return result


def combined(
    rows: tf.Tensor, ids: tf.SparseTensor, weights: tf.SparseTensor | None, combiner: str
) -> tf.Tensor:
    """Combines rows that were looked up one by one.

    Args:
      rows: [number of ids, dim].
      ids: [bags, any].
      weights: None, or one weight for each id.
      combiner: As in `combine_segments`.

    Returns:
      [bags, dim], zeros for bags without ids.
    """
    values = None if weights is None else tf.cast(weights.values, rows.dtype)
    if values is not None:
        rows = rows * values[:, tf.newaxis]
    return combine_segments(rows, ids.indices[:, 0], ids.dense_shape[0], combiner, values)


def combine_segments(
    rows: tf.Tensor, segments: tf.Tensor, count: tf.Tensor, combiner: str, weights: tf.Tensor | None
) -> tf.Tensor:
    """Combines the rows of each segment.

    Args:
      rows: [n, dim], multiplied with the weights.
      segments: int64 [n], in any order.
      count: The number of segments.
      combiner: "sum", "mean", "sqrtn", "max" or "min".
      weights: [n], whose sums and sums of squares "mean" and "sqrtn" divide by; None: each weight is 1.

    Returns:
      [count, dim], zeros for segments without rows and for those with a divisor of 0.

    Raises:
      ValueError: The combiner is unknown.
    """
    if combiner in ("max", "min"):
        combine = tf.math.unsorted_segment_max if combiner == "max" else tf.math.unsorted_segment_min
        is_empty = tf.equal(tf.math.unsorted_segment_sum(tf.ones_like(segments), segments, count), 0)
        result = combine(rows, segments, count)
        return result * tf.cast(tf.logical_not(is_empty), rows.dtype)[:, tf.newaxis]
    total = tf.math.unsorted_segment_sum(rows, segments, count)
    if combiner == "sum":
        return total
    if weights is None:
        weights = tf.ones_like(segments, rows.dtype)
    if combiner == "mean":
        divisor = tf.math.unsorted_segment_sum(weights, segments, count)
    elif combiner == "sqrtn":
        divisor = tf.sqrt(tf.math.unsorted_segment_sum(tf.square(weights), segments, count))
    else:
        raise ValueError(f"Unknown combiner {combiner!r}; known are sum, mean, sqrtn, max and min")
    return tf.math.divide_no_nan(total, divisor[:, tf.newaxis])


def as_keys(ids: Any, variable: EmbeddingVariable, who: str) -> tf.Tensor:
    """Returns ids as a tensor of the variable's key_dtype.

    Args:
      ids: A tensor, or a value that converts to one. Its integer dtype may be narrower than key_dtype: int32
        ids for an int64 variable are widened.
      variable: The embedding variable.
      who: The beginning of error messages.

    Raises:
      TypeError: The ids are not integers, or key_dtype cannot represent all values of their dtype.
    """
    tensor = tf.convert_to_tensor(ids, dtype_hint=variable.key_dtype)
    if tensor.dtype == variable.key_dtype:
        return tensor
    wide, narrow = variable.key_dtype, tensor.dtype
    if not (narrow.is_integer and wide.min <= narrow.min and narrow.max <= wide.max):
        raise TypeError(
            f"{who}: ids are {narrow.name}, which embedding variable '{variable.m_var_name}' with "
            f"key_dtype {wide.name} cannot hold"
        )
    return tf.cast(tensor, wide)
