"""Variables that are composed of several tables, and how the lookups of `tf.nn` read them."""

from __future__ import annotations

import abc
from typing import Any

import tensorflow as tf

from sparse_operation_kit.lookup import bags


class ComposedTable(abc.ABC):
    """A variable whose rows are composed of rows of several tables."""

    # The name that it was created with, for error messages.
    name: str

    @abc.abstractmethod
    def look_up(self, ids: tf.Tensor, blocknums: Any = None) -> tf.Tensor:
        """Returns the rows of ids [n], [n, width].

        Args:
          ids: int64 [n].
          blocknums: For variables of a dynamic dimension: the number of blocks of each id.
        """

    @abc.abstractmethod
    def of_bags(self, ids: tf.Tensor, blocknums: Any) -> Any:
        """Returns the `blocknums` for `look_up` when rows are combined: equal ids get equal numbers.

        Args:
          ids: int64 [n].
          blocknums: The argument of the lookup: [n], or None.

        Raises:
          ValueError: The variable needs `blocknums`, but they are None, or it has none, but they are given.
        """


def composed(params: Any) -> ComposedTable | None:
    """Returns the composed table that `params` is, or contains as its only element; otherwise None."""
    if isinstance(params, (list, tuple)) and len(params) == 1:
        params = params[0]
    return params if isinstance(params, ComposedTable) else None


def look_up_rows(table: ComposedTable, ids: Any, max_norm: float | None, blocknums: Any) -> tf.Tensor:
    """`tf.nn.embedding_lookup` of a composed table: rows of ids of any shape."""
    ids = _as_int64(ids)
    if blocknums is not None:
        blocknums = tf.reshape(blocknums, [-1])
    rows = clipped(table.look_up(tf.reshape(ids, [-1]), blocknums), max_norm)
    result = tf.reshape(rows, tf.concat([tf.shape(ids), tf.shape(rows)[1:]], axis=0))
    result.set_shape(ids.shape.concatenate(rows.shape[1:]))
    return result


def look_up_bags(
    table: ComposedTable,
    ids: tf.SparseTensor,
    weights: tf.SparseTensor | None,
    combiner: str | None,
    max_norm: float | None,
    blocknums: Any,
) -> tf.Tensor:
    """`tf.nn.embedding_lookup_sparse` of a composed table, with zeros for bags without ids.

    Args:
      table: The table.
      ids: [d0, ..., dn]; the last dimension is combined.
      weights: None, or one weight for each id.
      combiner: "sum", "mean", which None means, or "sqrtn".
      max_norm: None, or the maximum norm of a row before it is combined.
      blocknums: See `ComposedTable`.

    Returns:
      [d0, ..., dn-1, width].
    """
    if not isinstance(ids, tf.SparseTensor):
        raise TypeError(f"Lookup in '{table.name}': ids must be a SparseTensor, not {ids!r}")
    matrix, of_matrix = bags.as_matrices(ids, weights)
    values = _as_int64(matrix.values)
    rows = clipped(table.look_up(values, table.of_bags(values, blocknums)), max_norm)
    return bags.with_leading_dimensions(bags.combined(rows, matrix, of_matrix, combiner or "mean"), ids)


def _as_int64(ids: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(ids)
    if not tensor.dtype.is_integer or tensor.dtype == tf.uint64:
        raise TypeError(f"ids are {tensor.dtype.name}, not of an integer dtype that int64 holds")
    return tf.cast(tensor, tf.int64)


def clipped(rows: tf.Tensor, max_norm: float | None) -> tf.Tensor:
    """Returns rows [n, width] with norms of at most `max_norm`; None means any."""
    return rows if max_norm is None else tf.clip_by_norm(rows, max_norm, axes=[1])
