"""What a table keeps of its keys besides weights and slots: how often they occurred, and when last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.compat.tensors import ascending_order
from sparse_operation_kit.tables import table_parts

if TYPE_CHECKING:
    from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


class Export(NamedTuple):
    """The rows of a table on this rank, in the order of the row numbers.

    Attributes:
      keys: `[n]` of the table's key dtype.
      values: float32 `[n, dim]`.
      versions: int64 `[n]`, the step of each row's last update; empty if the table does not keep it.
      freqs: int64 `[n]`, occurrences in training lookups; empty if the table does not keep them.
    """

    keys: tf.Tensor
    values: tf.Tensor
    versions: tf.Tensor
    freqs: tf.Tensor


def export(variable: EmbeddingVariable, name: str | None) -> Export:
    """Returns all rows on this rank, as of one moment."""
    found = _snapshot(variable, True, name)
    return Export(tf.cast(found.keys, variable.key_dtype), found.values, found.last_step, found.frequency)


def frequency_of(variable: EmbeddingVariable, ids: Any, name: str | None) -> tf.Tensor:
    """Returns how often each of `ids` occurred in training lookups, int64 of their shape; 0 if unknown."""
    found = _snapshot(variable, False, None)
    return _by_id(variable, ids, found, found.frequency, found.waiting_frequency, 0, name)


def last_step_of(variable: EmbeddingVariable, ids: Any, name: str | None) -> tf.Tensor:
    """Returns the step of the last update of each of `ids`, int64 of their shape; -1 if unknown."""
    found = _snapshot(variable, False, None)
    return _by_id(variable, ids, found, found.last_step, found.waiting_last_step, -1, name)


def _snapshot(variable: EmbeddingVariable, with_values: bool, name: str | None) -> Any:
    return table_parts.concatenated(
        variable,
        lambda handle: native.ops.sok_table_snapshot(
            handle, dim=variable.dim, with_values=with_values, name=name
        ),
    )


def _by_id(
    variable: EmbeddingVariable,
    ids: Any,
    found: Any,
    of_rows: tf.Tensor,
    of_waiting: tf.Tensor,
    unknown: int,
    name: str | None,
) -> tf.Tensor:
    ids = tf.convert_to_tensor(ids)
    if variable.key_dtype == tf.int64 and ids.dtype in (tf.int32, tf.uint32):
        ids = tf.cast(ids, tf.int64)
    if ids.dtype != variable.key_dtype:
        raise TypeError(
            f"Embedding variable '{variable.m_var_name}' has {variable.key_dtype.name} keys, and these ids "
            f"are {ids.dtype.name}"
        )
    wanted = tf.cast(ids, tf.int64)
    # The end of the arrays stands for ids that are not in the table.
    keys = tf.concat([found.keys, found.waiting], 0)
    numbers = tf.concat([of_rows, of_waiting, [unknown]], 0)
    order = ascending_order(keys)
    at = tf.searchsorted(tf.gather(keys, order), tf.reshape(wanted, [-1]), out_type=tf.int32)
    positions = tf.gather(tf.concat([order, [tf.size(keys)]], 0), at)
    is_there = tf.equal(tf.gather(tf.concat([keys, [0]], 0), positions), tf.reshape(wanted, [-1]))
    is_there = tf.logical_and(is_there, tf.less(positions, tf.size(keys)))
    per_id = tf.where(is_there, tf.gather(numbers, positions), tf.zeros_like(at, tf.int64) + unknown)
    return tf.reshape(per_id, tf.shape(wanted), name=name)
