"""DeepRec's lookups: fused ones, and TensorFlow's with DeepRec's arguments or composed tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.deeprec.adaptive import constant_initial_value, look_up_with_initial_rows
from sparse_operation_kit.lookup import bags
from sparse_operation_kit.lookup.bags import as_keys
from sparse_operation_kit.lookup.composed import clipped, composed, look_up_bags, look_up_rows
from sparse_operation_kit.lookup.embedding_lookup import group_embedding_lookup_sparse
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


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
    check_sparse(function, sparse_ids, sparse_weights)
    if blocknums is not None:
        raise ValueError(
            f"{function}: blocknums is for variables of get_dynamic_dimension_embedding_variable, which "
            "tf.nn.embedding_lookup and tf.nn.embedding_lookup_sparse look up"
        )
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


def check_sparse(function: str, ids: Any, weights: Any) -> None:
    """Raises TypeError, which begins with `function`, unless ids and weights are SparseTensors."""
    if not isinstance(ids, tf.SparseTensor):
        raise TypeError(f"{function}: the ids must be a SparseTensor, not {ids!r}")
    if weights is not None and not isinstance(weights, tf.SparseTensor):
        raise TypeError(f"{function}: the weights must be None or a SparseTensor, not {weights!r}")


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


@replacements.implements("tf.nn.embedding_lookup")
def with_row_arguments(original: Callable) -> Callable:
    """Wraps `embedding_lookup`: `blocknums`, `ev_init_value` and `counts`, and composed tables."""

    def embedding_lookup(
        params: Any,
        ids: Any,
        *args: Any,
        ev_init_value: Any = None,
        blocknums: Any = None,
        counts: Any = None,
        **kwargs: Any,
    ) -> tf.Tensor:
        del counts  # Tables count the ids of a lookup themselves.
        table = composed(params)
        if table is None:
            _refuse_blocknums("embedding_lookup", params, blocknums)
            if ev_init_value is None:
                return original(params, ids, *args, **kwargs)
        given = inspect.signature(original).bind(params, ids, *args, **kwargs).arguments
        with tf.name_scope(given.get("name") or "embedding_lookup"):
            if table is not None:
                return look_up_rows(table, ids, given.get("max_norm"), blocknums)
            return _look_up_with_initial_rows(params, ids, ev_init_value, given.get("max_norm"))

    return embedding_lookup


@replacements.implements("tf.nn.embedding_lookup_sparse", "tf.nn.safe_embedding_lookup_sparse")
def with_bag_arguments(original: Callable) -> Callable:
    """Wraps lookups of bags: `blocknums`, composed tables, and tables in one op.

    TensorFlow's functions look each distinct id up once. An admission filter has to count all occurrences.
    """
    is_safe = "default_id" in inspect.signature(original).parameters
    who = "safe_embedding_lookup_sparse" if is_safe else "embedding_lookup_sparse"

    def embedding_lookup_sparse(*args: Any, blocknums: Any = None, **kwargs: Any) -> tf.Tensor:
        given = inspect.signature(original).bind_partial(*args, **kwargs).arguments
        params = next(iter(given.values()), None)
        prefix = "sparse" if is_safe else "sp"
        ids, weights = given.get(f"{prefix}_ids"), given.get(f"{prefix}_weights")
        table = composed(params)
        if table is None:
            _refuse_blocknums(who, params, blocknums)
            if _is_table_with_bags(is_safe, params, ids, weights):
                return _look_up_table(is_safe, ids, weights, given)
            return original(*args, **kwargs)
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        combiner, max_norm, name = (given.get(one) for one in ("combiner", "max_norm", "name"))
        if is_safe:
            _refuse_blocknums_of_some(blocknums)
            return fused_safe_embedding_lookup_sparse(
                table, ids, weights, combiner, given.get("default_id"), name or who, max_norm=max_norm
            )
        with tf.name_scope(name or who):
            return look_up_bags(table, ids, weights, combiner, max_norm, blocknums)

    return embedding_lookup_sparse


def _is_table_with_bags(is_safe: bool, params: Any, ids: Any, weights: Any) -> bool:
    parts = bags.parts(params)
    is_table = len(parts) == 1 and isinstance(parts[0], EmbeddingVariable)
    if not is_table or not isinstance(ids, tf.SparseTensor):
        return False
    # Of ids with more dimensions, the unsafe function combines all but the first dimension.
    has_bags = is_safe or ids.shape.rank in (None, 2)
    return has_bags and isinstance(weights, (tf.SparseTensor, type(None)))


def _look_up_table(is_safe: bool, ids: Any, weights: Any, given: Mapping[str, Any]) -> tf.Tensor:
    (table,) = bags.parts(next(iter(given.values())))
    if weights is not None:
        weights = tf.cast(weights, tf.float32)
    options = {name: given.get(name) for name in ("combiner", "max_norm", "name")}
    if is_safe:
        options["default_id"] = given.get("default_id")
        return fused_safe_embedding_lookup_sparse(table, ids, weights, **options)
    return fused_embedding_lookup_sparse(table, ids, weights, **options)


def _refuse_blocknums_of_some(blocknums: Any) -> None:
    if blocknums is not None:
        raise ValueError(
            "safe_embedding_lookup_sparse leaves ids out, so that there is no number of blocks for each of "
            "the others: use embedding_lookup_sparse with blocknums"
        )


def _refuse_blocknums(function: str, params: Any, blocknums: Any) -> None:
    if blocknums is not None:
        raise ValueError(
            f"{function}: blocknums is for variables of get_dynamic_dimension_embedding_variable, not for "
            f"{params!r}"
        )


def _look_up_with_initial_rows(params: Any, ids: Any, initial_rows: Any, max_norm: float | None) -> tf.Tensor:
    parts = bags.parts(params)
    if len(parts) != 1 or not isinstance(parts[0], EmbeddingVariable):
        raise ValueError(f"embedding_lookup: ev_init_value is for embedding variables, not {params!r}")
    (table,) = parts
    keys = as_keys(ids, table, "embedding_lookup")
    initial_rows = tf.reshape(initial_rows, [-1, table.dim])
    rows = look_up_with_initial_rows(
        table, tf.reshape(keys, [-1]), initial_rows, constant_initial_value(table)
    )
    rows = clipped(rows, max_norm)
    result = tf.reshape(rows, tf.concat([tf.shape(keys), [table.dim]], axis=0))
    result.set_shape(keys.shape.concatenate([table.dim]))
    return result
