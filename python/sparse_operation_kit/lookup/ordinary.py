"""Lookups in ordinary variables, by TensorFlow's own ops, and sequences padded with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import tensorflow as tf

from sparse_operation_kit.compat.tensors import embedding_lookup_sparse, with_values

Bags = Union[tf.SparseTensor, tf.RaggedTensor]


def name_of(variables: Sequence[Any]) -> str:
    """Returns the name of an ordinary variable, given as the list of its parts."""
    return variables[0].name.split(":")[0]


def look_up_bags(
    variables: Sequence[Any],
    ids: Bags,
    combiner: str,
    weights: Bags | None,
    partition_strategy: str,
    who: str,
) -> tf.Tensor:
    """Like `tf.nn.embedding_lookup_sparse`, but bags without ids at the end of the batch get zeros too.

    Args:
      variables: The variable's parts.
      ids: `[batch, any]`, of any integer dtype except uint64.
      combiner: "sum", "mean" or "sqrtn".
      weights: None, or a tensor of the same kind as `ids`. NaN, infinity, and weights at other positions than
        the ids raise an error when the graph runs.
      partition_strategy: "mod" or "div".
      who: The beginning of error messages.

    Returns:
      `[batch, dim]`.

    Raises:
      TypeError: The ids do not have such a dtype.
    """
    ids = with_values(ids, _positions(ids.values, who))
    output = embedding_lookup_sparse(
        list(variables),
        ids,
        None if weights is None else checked_weights(weights, ids, who),
        partition_strategy,
        combiner,
    )
    # TensorFlow's output ends with the bag of the last id. The gradient of `tf.pad` in 1.15 needs int32.
    missing = tf.cast(_rows_of(ids), tf.int32) - tf.shape(output)[0]
    padded = tf.pad(output, tf.stack([[0, missing], [0, 0]]))
    known_batch = ids.shape[0] if ids.shape.rank else None
    padded.set_shape([known_batch, output.shape[-1]])
    return padded


def look_up_rows(variables: Sequence[Any], ids: Any, partition_strategy: str, who: str) -> tf.Tensor:
    """`tf.nn.embedding_lookup` for ids of any shape and any integer dtype except uint64.

    Raises:
      TypeError: The ids do not have such a dtype.
    """
    return tf.compat.v1.nn.embedding_lookup(
        list(variables), _positions(ids, who), partition_strategy=partition_strategy
    )


def _positions(ids: Any, who: str) -> tf.Tensor:
    tensor = tf.convert_to_tensor(ids)
    if tensor.dtype in (tf.int32, tf.int64):
        return tensor
    if not tensor.dtype.is_integer or tensor.dtype == tf.uint64:
        raise TypeError(f"{who}: ids are {tensor.dtype.name}, not of an integer dtype that int64 holds")
    return tf.cast(tensor, tf.int64)


def _rows_of(ids: Bags) -> tf.Tensor:
    return ids.nrows() if isinstance(ids, tf.RaggedTensor) else ids.dense_shape[0]


def checked_weights(weights: Bags, ids: Bags, who: str) -> Bags:
    """Returns weights that raise an error when the graph runs if they are not finite, or not at the ids."""
    of_weights, of_ids = _places(weights), _places(ids)
    checks = []
    if of_weights is not of_ids:
        message = f"{who}: weights are not at the positions of the ids"
        shapes = [tf.shape(of_weights), tf.shape(of_ids)]
        with tf.control_dependencies([tf.compat.v1.debugging.assert_equal(*shapes, message=message)]):
            checks.append(tf.compat.v1.debugging.assert_equal(of_weights, of_ids, message=message))
    with tf.control_dependencies(checks):
        finite = tf.debugging.assert_all_finite(tf.cast(weights.values, tf.float32), f"{who}: weights")
    return with_values(weights, finite)


def _places(bags: Bags) -> tf.Tensor:
    return tf.cast(bags.row_splits, tf.int64) if isinstance(bags, tf.RaggedTensor) else bags.indices


def pad_sequences(ids: Bags, weights: Any, rows: tf.Tensor, who: str) -> tf.Tensor:
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
        weights = checked_weights(weights, ids, who)
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
