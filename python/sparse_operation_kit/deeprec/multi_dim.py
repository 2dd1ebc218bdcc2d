"""DeepRec's lookups of ids with several dimensions, each of which has a combiner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.deeprec.lookups import check_sparse
from sparse_operation_kit.lookup import bags
from sparse_operation_kit.lookup.embedding_lookup import group_embedding_lookup_sparse
from sparse_operation_kit.lookup.group import COMBINERS

_KNOWN = (*COMBINERS, "max", "min", "tile")


# AutoGraph of TensorFlow 1.15 cannot convert the comprehensions of the functions that are called from here.
@tf.autograph.experimental.do_not_convert
def safe_embedding_lookup_multi_dim(
    embedding_weights: Any,
    sparse_ids: tf.SparseTensor,
    sparse_weights: tf.SparseTensor | None = None,
    combiners: str | Sequence[str] | None = ("mean",),
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
    weight_axis: int | None = 1,
    prune: bool = True,
) -> tf.Tensor:
    """Looks up ids and combines their rows along the last dimensions.

    Args:
      embedding_weights: An embedding variable, an ordinary variable, or the parts of a partitioned one.
      sparse_ids: Ids `[d0, ..., dn]`. The rank must be known statically.
      sparse_weights: None, or one weight for each id, with which its row is multiplied.
      combiners: "sum", "mean", "sqrtn", "max", "min" or "tile" for each of the last dimensions; None means
        ["mean"]. The last dimension is combined first. Bags without ids do not count in the dimension before
        it. "tile" concatenates the rows of a dimension, with zeros for missing ones.
      name: The name scope of the ops.
      partition_strategy: "div" or "mod": how ids are spread over the parts of a partitioned variable.
      max_norm: None, or the maximum norm of a row; longer rows are scaled down before they are combined.
      weight_axis: The dimension whose "mean" and "sqrtn" divide by weights; None means the last one.
      prune: Whether to leave out negative ids and, unless one of the combiners is "sum", ids with a weight <=
        0.

    Returns:
      `[d0, ..., dm, width]`: the dimensions with a combiner are gone. `"tile"` multiplies the width.

    Raises:
      TypeError: An argument has the wrong type.
      ValueError: A combiner is unknown, there are too many, the rank of the ids is not known, or
        `weight_axis` is not a dimension after the first.
    """
    function = "safe_embedding_lookup_multi_dim"
    names = _checked_combiners(function, combiners)
    rank = _checked_rank(function, sparse_ids, sparse_weights, len(names))
    tiled = ["tile"] * (rank - 1 - len(names))
    with tf.name_scope(name or function):
        ids, weights = sparse_ids, sparse_weights
        if prune:
            ids, weights = bags.pruned(ids, weights, "sum" if "sum" in names else "mean")
        kept = rank - len(names)
        axis = _axis(function, weight_axis, rank)
        if len(names) == 1 and names[0] in COMBINERS and max_norm is None and weights is None:
            matrix, _ = bags.as_matrices(ids, None)
            rows = group_embedding_lookup_sparse([embedding_weights], [matrix], names, partition_strategy)[0]
            return bags.with_leading_dimensions(rows, sparse_ids)
        parts = bags.parts(embedding_weights)
        rows = tf.compat.v1.nn.embedding_lookup(
            parts, ids.values, partition_strategy=partition_strategy, max_norm=max_norm
        )
        result = _combine(rows, ids, weights, tiled + names, axis)
        shape = tf.concat([tf.cast(sparse_ids.dense_shape[:kept], tf.int32), [-1]], axis=0)
        result = tf.reshape(result, shape)
        width = None if "tile" in names else rows.shape[-1]
        result.set_shape(sparse_ids.shape[:kept].concatenate([width]))
        return result


@tf.autograph.experimental.do_not_convert
def embedding_lookup_sparse_multi_dim(
    params: Any,
    sp_ids: tf.SparseTensor,
    sp_weights: tf.SparseTensor | None,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiners: str | Sequence[str] | None = None,
    max_norm: float | None = None,
    weight_axis: int | None = -1,
) -> tf.Tensor:
    """Like `safe_embedding_lookup_multi_dim`, with a combiner for each dimension and without pruning.

    Args:
      params, sp_ids, sp_weights: Like that function's `embedding_weights`, `sparse_ids`, `sparse_weights`.
      combiners: One for each dimension except the first; None means ["mean"].
      partition_strategy, name, max_norm, weight_axis: Like that function's.

    Returns:
      `[d0, width]`, zeros for rows without ids, also at the end of the batch.

    Raises:
      TypeError: An argument has the wrong type.
      ValueError: A combiner is unknown, their number is not one less than the rank of the ids, or
        `weight_axis` is not a dimension after the first.
    """
    function = "embedding_lookup_sparse_multi_dim"
    names = _checked_combiners(function, combiners)
    rank = _checked_rank(function, sp_ids, sp_weights, len(names))
    if rank != len(names) + 1:
        raise ValueError(
            f"{function}: ids of shape {sp_ids.shape} need {rank - 1} combiners, not {len(names)}: {names}"
        )
    return safe_embedding_lookup_multi_dim(
        params,
        sp_ids,
        sp_weights,
        names,
        name or function,
        partition_strategy,
        max_norm,
        weight_axis,
        prune=False,
    )


def _combine(
    rows: tf.Tensor, ids: tf.SparseTensor, weights: tf.SparseTensor | None, names: list[str], axis: int
) -> tf.Tensor:
    """Combines rows along all dimensions except the first; returns [d0, width]."""
    places = ids.indices
    values = None
    if weights is not None:
        values = tf.cast(weights.values, rows.dtype)
        rows = rows * values[:, tf.newaxis]
    for dimension in range(len(names), 0, -1):
        bag_of, segments = tf.unique(_linear(places[:, :dimension], ids.dense_shape[:dimension]))
        count = tf.size(bag_of)
        divide_by = values if dimension == axis else None
        if names[dimension - 1] == "tile":
            size = tf.cast(ids.dense_shape[dimension], tf.int32)
            rows = _tiled(rows, segments, tf.cast(places[:, dimension], tf.int32), count, size)
        else:
            rows = bags.combine_segments(rows, segments, count, names[dimension - 1], divide_by)
        if values is not None:
            values = tf.math.unsorted_segment_mean(values, segments, count)
        places = tf.math.unsorted_segment_max(places[:, :dimension], segments, count)
    shape = tf.stack([tf.cast(ids.dense_shape[0], tf.int32), tf.shape(rows)[1]])
    return tf.scatter_nd(tf.cast(places, tf.int32), rows, shape)


def _linear(places: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Returns the positions of the indices [n, k] in a flattened tensor of that shape."""
    strides = tf.math.cumprod(shape, exclusive=True, reverse=True)
    return tf.reduce_sum(places * strides, axis=1)


def _tiled(
    rows: tf.Tensor, segments: tf.Tensor, columns: tf.Tensor, count: tf.Tensor, size: tf.Tensor
) -> tf.Tensor:
    width = tf.shape(rows)[1]
    places = tf.stack([segments, columns], axis=1)
    return tf.reshape(tf.scatter_nd(places, rows, tf.stack([count, size, width])), [count, size * width])


def _axis(function: str, axis: int | None, rank: int) -> int:
    wanted = -1 if axis is None else axis
    result = wanted + rank if wanted < 0 else wanted
    if not 0 < result < rank:
        raise ValueError(f"{function}: weight_axis must be a dimension after the first, not {axis}")
    return result


def _checked_combiners(function: str, combiners: Any) -> list[str]:
    names = ["mean"] if combiners is None else combiners
    names = list(names) if isinstance(names, (list, tuple)) else [names]
    for name in names:
        if name not in _KNOWN:
            raise ValueError(f"{function}: unknown combiner {name!r}; known are {', '.join(_KNOWN)}")
    return names


def _checked_rank(function: str, ids: Any, weights: Any, combiners: int) -> int:
    check_sparse(function, ids, weights)
    rank = ids.shape.rank
    if rank is None or rank < 2:
        raise ValueError(f"{function}: the ids need two dimensions or more, not shape {ids.shape}")
    if not 0 < combiners < rank:
        raise ValueError(
            f"{function}: ids of shape {ids.shape} need 1 to {rank - 1} combiners, not {combiners}"
        )
    return rank
