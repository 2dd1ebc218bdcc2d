"""Gives TensorFlow's lookups the arguments that DeepRec adds to them, and composed tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.deeprec.adaptive import constant_initial_value, look_up_with_initial_rows
from sparse_operation_kit.deeprec.fused_lookups import (
    fused_embedding_lookup_sparse,
    fused_safe_embedding_lookup_sparse,
)
from sparse_operation_kit.lookup import bags
from sparse_operation_kit.lookup.composed import clipped, composed, look_up_bags, look_up_rows
from sparse_operation_kit.lookup.keys import as_keys
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


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
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        with tf.name_scope(arguments.get("name") or who):
            if is_safe:
                return _look_up_safely(table, ids, weights, arguments, blocknums)
            combiner, max_norm = arguments.get("combiner"), arguments.get("max_norm")
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


def _look_up_safely(table: Any, ids: Any, weights: Any, arguments: Any, blocknums: Any) -> tf.Tensor:
    """Leaves out negative ids and, unless the combiner is "sum", ids with a weight <= 0."""
    if blocknums is not None:
        raise ValueError(
            "safe_embedding_lookup_sparse leaves ids out, so that there is no number of blocks for each of "
            "the others: use embedding_lookup_sparse with blocknums"
        )
    combiner = arguments.get("combiner") or "mean"
    matrix, of_matrix = bags.pruned(*bags.as_matrices(ids, weights), combiner)
    if arguments.get("default_id") is not None:
        matrix, of_matrix = bags.filled(matrix, of_matrix, arguments["default_id"])
    rows = look_up_bags(table, matrix, of_matrix, combiner, arguments.get("max_norm"), None)
    return bags.with_leading_dimensions(rows, ids)


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
