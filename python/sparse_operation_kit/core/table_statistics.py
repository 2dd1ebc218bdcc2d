"""What tables hold and what training has done with them, counted over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core import exchange_names
from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable


class TableStatistics(NamedTuple):
    """Numbers of one table over all ranks: scalar tensors, int64 but for the ratio, or what a session made of
    them.

    All but `rows` count from when the session made the table, by its initializer or a restore, and are of
    training lookups. Ids that several lookups of a table in one group share, or several ranks, are one
    distinct id of that step. They are the same on any number of ranks, except for the bytes.

    Attributes:
      rows: in the table now.
      ids: that were looked up, duplicates counted.
      distinct_ids: those of each step, duplicates counted once.
      admitted_ids: that got a row.
      filtered_ids: of the distinct ids of each step, those that the table's admission left without a row.
      exchange_bytes: that ranks sent each other for the table: ids, rows, gradients. 0 at one rank.
      unique_ratio: float64, `distinct_ids / ids`, 0 before the first.
    """

    rows: tf.Tensor
    ids: tf.Tensor
    distinct_ids: tf.Tensor
    admitted_ids: tf.Tensor
    filtered_ids: tf.Tensor
    exchange_bytes: tf.Tensor
    unique_ratio: tf.Tensor


def table_statistics(variables: Sequence[EmbeddingVariable] | None = None) -> dict[str, TableStatistics]:
    """Makes tensors that tell what tables hold and what training has done with them.

    Run them between steps: in a step they may come before or after its lookups. Over several ranks they are
    one exchange, so all ranks make them of the same variables and run them together; any of them runs it.

    Args:
      variables: The embedding variables; None takes all that the default graph has by now.

    Returns:
      By the variable's `m_var_name`.

    Raises:
      TypeError: One of `variables` is no embedding variable.
      ValueError: There are none.
    """
    tables = tables_by_name(variables)
    numbers = summed_statistics(tables)
    ratios = tf.math.divide_no_nan(tf.cast(numbers[:, 2], tf.float64), tf.cast(numbers[:, 1], tf.float64))
    by_table = zip(tables, tf.unstack(numbers, len(tables)), tf.unstack(ratios, len(tables)), strict=True)
    return {
        table.m_var_name: TableStatistics._make([*tf.unstack(row, len(TableStatistics._fields) - 1), ratio])
        for table, row, ratio in by_table
    }


def tables_by_name(variables: Sequence[EmbeddingVariable] | None) -> list[EmbeddingVariable]:
    """The distinct ones of `variables`, or all of the default graph, in an order that ranks agree about.

    Raises:
      TypeError, ValueError: As `table_statistics`.
    """
    if variables is None:
        found = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        variables = [variable for variable in found if isinstance(variable, EmbeddingVariable)]
    for variable in variables:
        if not isinstance(variable, EmbeddingVariable):
            raise TypeError(f"Only embedding variables have statistics, and {variable!r} is none")
    if not variables:
        raise ValueError("There is no embedding variable to give statistics of")
    return [table for _, table in sorted({table.m_var_name: table for table in variables}.items())]


def summed_statistics(tables: Sequence[EmbeddingVariable]) -> tf.Tensor:
    """int64 [tables, 6]: of each table the integers of `TableStatistics`, in its order, over all ranks."""
    known = communicator()
    numbers = native.ops.sok_table_statistics([table.handle for table in tables])
    if known.size == 1:
        return numbers
    name = exchange_names.list_of([table.m_var_name for table in tables])
    length = len(tables) * (len(TableStatistics._fields) - 1)
    received, _ = known.exchange(
        tf.tile(tf.reshape(numbers, [-1]), [known.size]),
        tf.constant([length] * known.size, tf.int32),
        exchange_names.unique_name(f"statistics of {name}"),
    )
    return tf.reduce_sum(tf.reshape(received, [known.size, *numbers.shape]), axis=0)
