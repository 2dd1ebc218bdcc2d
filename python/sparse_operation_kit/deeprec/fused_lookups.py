"""DeepRec's fused lookups of one feature: those of TensorFlow with other arguments, as one lookup op."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.lookup import bags
from sparse_operation_kit.lookup.composed import composed, look_up_bags
from sparse_operation_kit.lookup.embedding_lookup import group_embedding_lookup_sparse


# AutoGraph of TensorFlow 1.15 cannot convert the comprehensions of the functions that are called from here.
@tf.autograph.experimental.do_not_convert
def fused_safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: tf.SparseTensor,
    sparse_weights: tf.SparseTensor | None = None,
    combiner: str | None = "mean",
    default_id: int | None = None,
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
    prune: bool = True,
    blocknums: None = None,
    fusion_version: str | None = None,
) -> tf.Tensor:
    """`tf.compat.v1.nn.safe_embedding_lookup_sparse` in one lookup op.

    Args:
      embedding_weights: An embedding variable, an ordinary variable, the parts of a partitioned one, or a
        variable of `get_multihash_variable` or `get_dynamic_dimension_embedding_variable`.
      sparse_ids: Ids `[d0, ..., dn]`; the last dimension is combined. Negative ids are left out, also for an
        embedding variable, which has rows for them in other lookups.
      sparse_weights: None, or one weight for each id, in the order of the ids. Unless the combiner is "sum",
        ids with a weight <= 0 are left out.
      combiner: "sum", "mean" or "sqrtn"; None means "mean".
      default_id: The id whose row a bag without ids gets. None: zeros, and no id is looked up for it.
      name: The name scope of the ops.
      partition_strategy: "div" or "mod": how ids are spread over the parts of a partitioned variable.
      max_norm: None, or the largest norm of a row; longer rows are scaled down before they are combined.
      prune: Whether ids are left out as said above.
      blocknums: Must be None.
      fusion_version: Has no effect: in DeepRec the version of its ops.

    Returns:
      Rows `[d0, ..., dn-1, dim]`.

    Raises:
      TypeError: An argument has the wrong type.
      ValueError: The combiner or the partition strategy is unknown, or `blocknums` is given.
    """
    del fusion_version
    function = "fused_safe_embedding_lookup_sparse"
    _check_sparse(function, sparse_ids, sparse_weights, blocknums)
    with tf.name_scope(name or function):
        ids, weights = bags.as_matrices(sparse_ids, sparse_weights)
        if prune:
            ids, weights = bags.pruned(ids, weights, combiner)
        if default_id is not None:
            ids, weights = bags.filled(ids, weights, default_id)
        rows = _combined(embedding_weights, ids, weights, combiner, partition_strategy, max_norm)
        return bags.with_leading_dimensions(rows, sparse_ids)


@tf.autograph.experimental.do_not_convert
def fused_embedding_lookup_sparse(
    params: Any,
    sp_ids: tf.SparseTensor,
    sparse_weights: tf.SparseTensor | None = None,
    partition_strategy: str | None = None,
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
    default_id: int | None = None,
    prune_invalid_ids: bool = False,
    fill_empty_row: bool = True,
    blocknums: None = None,
) -> tf.Tensor:
    """`tf.compat.v1.nn.embedding_lookup_sparse` in one lookup op.

    Unlike TensorFlow's function, it returns zeros for bags without ids at the end of the batch too.

    Args:
      params: As `embedding_weights` of `fused_safe_embedding_lookup_sparse`, as are the arguments of equal
        names.
      sp_ids: Ids `[batch, any]`.
      partition_strategy: "div", which None means, or "mod".
      prune_invalid_ids: Whether negative ids are left out, and unless the combiner is "sum", ids with a
        weight <= 0.
      fill_empty_row: If false, `default_id` has no effect.
      blocknums: Must be None.

    Returns:
      Rows `[batch, dim]`.

    Raises:
      TypeError: An argument has the wrong type.
      ValueError: The combiner or the partition strategy is unknown, `sp_ids` is not a matrix, or `blocknums`
        is given.
    """
    function = "fused_embedding_lookup_sparse"
    if isinstance(sp_ids, tf.SparseTensor) and sp_ids.shape.rank not in (None, 2):
        raise ValueError(f"{function}: sp_ids must be [batch, any], not of shape {sp_ids.shape}")
    return fused_safe_embedding_lookup_sparse(
        params,
        sp_ids,
        sparse_weights,
        combiner,
        default_id if fill_empty_row else None,
        name or function,
        partition_strategy or "div",
        max_norm,
        prune_invalid_ids,
        blocknums,
    )


def _check_sparse(function: str, ids: Any, weights: Any, blocknums: Any) -> None:
    if not isinstance(ids, tf.SparseTensor):
        raise TypeError(f"{function}: the ids must be a SparseTensor, not {ids!r}")
    if weights is not None and not isinstance(weights, tf.SparseTensor):
        raise TypeError(f"{function}: the weights must be None or a SparseTensor, not {weights!r}")
    if blocknums is not None:
        raise ValueError(
            f"{function}: blocknums is for variables of get_dynamic_dimension_embedding_variable, which "
            "tf.nn.embedding_lookup and tf.nn.embedding_lookup_sparse look up"
        )


def _combined(
    params: Any,
    ids: tf.SparseTensor,
    weights: tf.SparseTensor | None,
    combiner: str | None,
    partition_strategy: str,
    max_norm: float | None,
) -> tf.Tensor:
    """Returns the combined rows [bags, dim], zeros for bags without ids."""
    combiner = combiner or "mean"
    table = composed(params)
    if table is not None:
        return look_up_bags(table, ids, weights, combiner, max_norm, None)
    of_weights = None if weights is None else [weights]
    if max_norm is None:
        return group_embedding_lookup_sparse([params], [ids], [combiner], partition_strategy, of_weights)[0]
    rows = tf.compat.v1.nn.embedding_lookup(
        bags.parts(params), ids.values, partition_strategy=partition_strategy, max_norm=max_norm
    )
    return bags.combined(rows, ids, weights, combiner)
