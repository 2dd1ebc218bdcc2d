"""Rows that a program sets. Over ranks, an exchange brings them to their owners.

The ranks first tell each other whether their arguments are valid, so that all of them raise or none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.ranks import exchange_names
from sparse_operation_kit.ranks.agreement import Stages
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables import table_parts

_WIDENED = (tf.int32, tf.uint32)


def assign_rows(variable: Any, keys: Any, rows: Any, name: str | None = None) -> tf.Tensor:
    """Implements `EmbeddingVariable.assign_rows`."""
    who = f"Embedding variable '{variable.m_var_name}'"
    keys = _keys_tensor(who, keys, variable.key_dtype)
    rows = _rows_tensor(who, rows)
    if not (
        keys.shape.is_compatible_with([None])
        and rows.shape.is_compatible_with([None, variable.dim])
        and keys.shape[:1].is_compatible_with(rows.shape[:1])
    ):
        raise ValueError(
            f"{who}: assign_rows takes keys of shape [n] and rows of shape [n, {variable.dim}], not "
            f"{keys.shape} and {rows.shape}"
        )
    if communicator().size == 1:
        return _assigned(variable, tf.cast(keys, tf.int64), rows, name)
    what = exchange_names.unique_name(f"assigned rows of '{variable.m_var_name}'")
    with tf.control_dependencies([_checked_on_all_ranks(who, variable, keys, rows, what)]):
        keys, rows = tf.identity(keys), tf.identity(rows)
    return assign_rows_of_all_ranks(variable, keys, rows, what, name)


def assign_rows_of_all_ranks(
    variable: Any, keys: tf.Tensor, rows: tf.Tensor, what: str, name: str | None = None
) -> tf.Tensor:
    """Sets the rows that all ranks give, each on the rank that owns its key.

    Args:
      variable: An embedding variable.
      keys: `[n]` of its key_dtype; n may differ between ranks. Of equal keys the first one counts, in the
        order of ranks.
      rows: float32 `[n, dim]`.
      what: The name of the exchange, the same on all ranks.
      name: The name of the op.
    """
    gather = communicator().allgather
    of_all = gather(tf.cast(keys, tf.int64), f"{what}: keys")
    rows_of_all = gather(rows, f"{what}: rows")
    distinct, positions = tf.unique(of_all)
    first = tf.math.unsorted_segment_min(tf.range(tf.size(of_all)), positions, tf.size(distinct))
    return _assigned(variable, distinct, tf.gather(rows_of_all, first), name)


def _assigned(variable: Any, keys: tf.Tensor, rows: tf.Tensor, name: str | None) -> tf.Tensor:
    return table_parts.on_all_parts(
        variable, lambda handle: native.ops.sok_table_assign(handle, keys, rows, name=name), name
    )


def _checked_on_all_ranks(who: str, variable: Any, keys: tf.Tensor, rows: tf.Tensor, what: str) -> tf.Tensor:
    """Returns a tensor that raises on all ranks if the keys and rows of one are not valid."""
    code, message = tf.constant(0), tf.constant("")
    for is_valid, text in reversed(_checks(who, variable, keys, rows)):
        code = tf.where(is_valid, code, tf.constant(tf.errors.INVALID_ARGUMENT))
        message = tf.where(is_valid, message, text)
    stages = Stages(f"{who}: assign_rows", exchange=what)
    stages.add([(code, message)], "validity")
    return stages.raise_failures()


def _checks(who: str, variable: Any, keys: tf.Tensor, rows: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns scalars: what must be true on a rank, and the error if it is not."""
    dim = variable.dim
    shape = tf.shape(rows, out_type=tf.int64)
    count = tf.size(keys, out_type=tf.int64)
    # Padded, because the number of dimensions may be known only when the graph runs.
    has_shape = tf.reduce_all(tf.equal(tf.concat([shape, [0, 0]], 0)[:2], tf.stack([count, dim])))
    of_shapes = tf.strings.format(
        f"{who} of dim {dim} cannot take keys of shape {{}} with rows of shape {{}}", (tf.shape(keys), shape)
    )
    has_ranks = tf.equal(tf.rank(keys) + tf.rank(rows), 3)
    keys = tf.cast(tf.reshape(keys, [-1]), tf.int64)
    distinct = tf.unique(keys).y
    checks = [
        (tf.logical_and(has_shape, has_ranks), of_shapes),
        (
            tf.equal(tf.size(distinct, out_type=tf.int64), count),
            tf.constant(f"{who} cannot take rows for a key that occurs twice on one rank"),
        ),
    ]
    if not variable.use_hashtable:
        limit = variable._num_keys()
        outside = tf.boolean_mask(keys, tf.logical_or(keys < 0, keys >= limit))
        text = tf.strings.format(f"{who} has the keys [0, {limit}), not {{}}", outside)
        checks.append((tf.equal(tf.size(outside), 0), text))
    return checks


def _keys_tensor(who: str, keys: Any, key_dtype: tf.DType) -> tf.Tensor:
    if not tf.is_tensor(keys):
        return tf.constant(_key_array(who, keys, key_dtype))
    if key_dtype == tf.int64 and keys.dtype in _WIDENED:
        return tf.cast(keys, tf.int64)
    if keys.dtype != key_dtype:
        raise TypeError(f"{who}: keys are {keys.dtype.name}, but its key_dtype is {key_dtype.name}")
    return keys


def _key_array(who: str, keys: Any, key_dtype: tf.DType) -> np.ndarray:
    array = np.asarray(keys)
    if array.size == 0:
        return array.astype(key_dtype.as_numpy_dtype)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{who}: keys are {array.dtype.name}, but its key_dtype is {key_dtype.name}")
    for key in (int(array.min()), int(array.max())):
        if not key_dtype.min <= key <= key_dtype.max:
            raise ValueError(f"{who}: key {key} does not fit its key_dtype, {key_dtype.name}")
    return array.astype(key_dtype.as_numpy_dtype)


def _rows_tensor(who: str, rows: Any) -> tf.Tensor:
    if not tf.is_tensor(rows):
        try:
            return tf.convert_to_tensor(rows, tf.float32)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{who}: rows must be numbers [n, dim]: {error}") from error
    if rows.dtype != tf.float32:
        raise TypeError(f"{who}: rows are {rows.dtype.name}, not float32; cast them")
    return rows
