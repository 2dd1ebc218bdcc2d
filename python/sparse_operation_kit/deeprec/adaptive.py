"""DeepRec's adaptive embedding: rare ids share the rows of a small variable, frequent ones have their own.

A mask says of each id which kind it is. When an id gets its own row, that starts as the shared row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.lookup import bags
from sparse_operation_kit.lookup.initial_rows import look_up_with_initial_rows
from sparse_operation_kit.lookup.keys import as_keys
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable

# The initial value of rows in tables for adaptive embedding, which no trained row has.
INITIAL_VALUE = float(np.finfo(np.float32).min)


def adaptive_rows(
    shared: Any,
    table: EmbeddingVariable,
    keys: tf.Tensor,
    shared_ids: tf.Tensor,
    mask: tf.Tensor,
    training: bool | tf.Tensor = True,
    partition_strategy: str = "mod",
) -> tf.Tensor:
    """Returns the row of each id.

    Args:
      shared: An ordinary variable, which may be partitioned: the rows that ids share.
      table: The embedding variable of ids with rows of their own, whose initial value is a constant.
      keys: The ids' keys in the table, [n].
      shared_ids: The ids' rows in `shared`, [n].
      mask: bool [n]: whether the id has a row of its own.
      training: As in lookups of tables.
      partition_strategy: "mod" or "div": how rows are spread over the parts of `shared`.

    Returns:
      [n, dim].
    """
    of_shared = tf.compat.v1.nn.embedding_lookup(
        bags.parts(shared), shared_ids, partition_strategy=partition_strategy
    )
    places = tf.dynamic_partition(tf.range(tf.size(keys)), tf.cast(mask, tf.int32), 2)
    own = look_up_with_initial_rows(
        table,
        tf.boolean_mask(keys, mask),
        tf.gather(of_shared, places[1]),
        constant_initial_value(table),
        training,
    )
    rows = tf.dynamic_stitch(places, [tf.gather(of_shared, places[0]), own])
    rows.set_shape([None, table.dim])
    return rows


def constant_initial_value(table: EmbeddingVariable) -> float:
    """Returns the initial value of a table.

    Raises:
      ValueError: The table's initial values are not one constant, or a key that is not admitted reads as it.
    """
    value = table.constant_initial_value
    if value is None:
        raise ValueError(
            f"Embedding variable '{table.m_var_name}': rows whose initial values a lookup brings need a "
            "table with a constant initializer, by which new rows are recognized"
        )
    return value


def adaptive_embedding_lookup_sparse(
    hash_params: Any,
    ev_params: Any,
    sp_ids: tf.SparseTensor,
    hash_ev_ids: tf.Tensor,
    sp_weights: None = None,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: None = None,
    bucket_size: int | None = None,
    adaptive_mask_tensor: Any = None,
    blocknums: None = None,
) -> tf.Tensor:
    """Looks up ids; a mask says which of them have rows of their own.

    Args:
      hash_params: An ordinary variable, which may be partitioned. Ids with a mask of 0 are row numbers of it.
      ev_params: An embedding variable with a constant initializer, for the other ids.
      sp_ids: Ids `[batch, any]`.
      hash_ev_ids: For each id with a mask of 1, in their order, the row of `hash_params` from which its own
        row starts.
      sp_weights: Must be None, as in DeepRec.
      partition_strategy: "mod" or "div": how rows are spread over the parts of `hash_params`.
      name: The name scope of the ops.
      combiner: "sum", "mean", which None means, or "sqrtn".
      max_norm: Must be None.
      bucket_size: Has no effect.
      adaptive_mask_tensor: An int tensor with 0 or 1 for each id.
      blocknums: Must be None.

    Returns:
      `[batch, dim]`, zeros for rows without ids.

    Raises:
      TypeError: An argument has the wrong type.
      ValueError: The mask is missing, or an argument that must be None is not.
    """
    del bucket_size
    function = "adaptive_embedding_lookup_sparse"
    for argument, value in (("sp_weights", sp_weights), ("max_norm", max_norm), ("blocknums", blocknums)):
        if value is not None:
            raise ValueError(f"{function}: {argument} must be None, not {value!r}")
    if adaptive_mask_tensor is None:
        raise ValueError(f"{function}: adaptive_mask_tensor must be given")
    if not isinstance(sp_ids, tf.SparseTensor):
        raise TypeError(f"{function}: sp_ids must be a SparseTensor, not {sp_ids!r}")
    (table,) = bags.parts(ev_params)
    if not isinstance(table, EmbeddingVariable):
        raise TypeError(f"{function}: ev_params must be an embedding variable, not {ev_params!r}")
    with tf.name_scope(name or function):
        mask = tf.not_equal(adaptive_mask_tensor, 0)
        places = tf.dynamic_partition(tf.range(tf.size(sp_ids.values)), tf.cast(mask, tf.int32), 2)
        shared_ids = tf.dynamic_stitch(
            places, [tf.gather(sp_ids.values, places[0]), tf.cast(hash_ev_ids, sp_ids.dtype)]
        )
        keys = as_keys(sp_ids.values, table, function)
        rows = adaptive_rows(
            hash_params, table, keys, shared_ids, mask, partition_strategy=partition_strategy
        )
        return bags.combined(rows, sp_ids, None, combiner or "mean")
