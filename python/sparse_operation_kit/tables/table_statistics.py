"""Statistics of tables: their rows, and counts of training lookups, over all ranks or servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.ranks import exchange_names
from sparse_operation_kit.ranks.agreement import agree
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables import table_parts
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.table_device import on_device


class TableStatistics(NamedTuple):
    """Statistics of one table over all ranks: scalar tensors, or the values that a session returned for them.

    All but `rows` count training lookups since the session created the table by its initializer or a restore.
    An id that occurs in several lookups of a group, or on several ranks, is one distinct id of that step. All
    numbers except the bytes are independent of the number of ranks. They are int64 except the ratio.

    On parameter servers they are those of all servers and workers. Each worker's lookup is a step of its own.

    Attributes:
      rows: rows in the table.
      ids: ids looked up, including duplicates.
      distinct_ids: the sum over steps of the distinct ids of each step.
      admitted_ids: ids that got a row.
      filtered_ids: the sum over steps of the distinct ids that the admission filter left without a row.
      exchange_bytes: bytes that ranks, or servers and workers, sent each other for the table: ids, rows and
        gradients, without the headers of messages. 0 with one rank.
      memory_rows: rows in memory, of a table with a disk below it; rows in the memory of a GPU, of a table
        with host memory below it. This and the next six are 0 for tables whose rows are all in memory, and
        depend on the number of ranks.
      disk_bytes: bytes of the table's files.
      memory_hits: the sum over calls (lookups, steps, reads of checkpoints; on a GPU, lookups only) of the
        rows that each needed and that were in memory.
      memory_misses: the same of the rows that were not, new ones among them.
      bytes_up: bytes of rows that came to memory from below it.
      bytes_down: bytes of rows that went from memory to what is below it.
      disk_rows: rows that were read from the table's files.
      unique_ratio: float64, `distinct_ids / ids`; 0 if there were no ids.
    """

    rows: tf.Tensor
    ids: tf.Tensor
    distinct_ids: tf.Tensor
    admitted_ids: tf.Tensor
    filtered_ids: tf.Tensor
    exchange_bytes: tf.Tensor
    memory_rows: tf.Tensor
    disk_bytes: tf.Tensor
    memory_hits: tf.Tensor
    memory_misses: tf.Tensor
    bytes_up: tf.Tensor
    bytes_down: tf.Tensor
    disk_rows: tf.Tensor
    unique_ratio: tf.Tensor


def table_statistics(variables: Sequence[EmbeddingVariable] | None = None) -> dict[str, TableStatistics]:
    """Creates tensors with the statistics of tables.

    Run them between steps: in a step they may run before or after its lookups. With several ranks they need
    one exchange. All ranks must create them for the same variables and run them at the same time; running any
    of the tensors runs the exchange. Any worker of parameter servers may run them, at any time: each server
    gives the numbers of its own moment.

    Args:
      variables: The embedding variables; None means all that the default graph has so far.

    Returns:
      A dict from the variable's `m_var_name` to its statistics.

    Raises:
      TypeError: One of `variables` is not an embedding variable.
      ValueError: There is no embedding variable, or they are on different devices or servers.
    """
    tables = tables_by_name(variables)
    numbers = summed_statistics(tables)
    ratios = tf.math.divide_no_nan(tf.cast(numbers[:, 2], tf.float64), tf.cast(numbers[:, 1], tf.float64))
    by_table = zip(tables, tf.unstack(numbers, len(tables)), tf.unstack(ratios, len(tables)))
    return {
        table.m_var_name: TableStatistics._make([*tf.unstack(row, len(TableStatistics._fields) - 1), ratio])
        for table, row, ratio in by_table
    }


def tables_by_name(variables: Sequence[EmbeddingVariable] | None) -> list[EmbeddingVariable]:
    """Returns the distinct `variables`, or all of the default graph, sorted by name as on all ranks.

    Raises:
      TypeError: One of `variables` is not an embedding variable.
      ValueError: There is no embedding variable.
    """
    if variables is None:
        found = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        variables = [variable for variable in found if isinstance(variable, EmbeddingVariable)]
    for variable in variables:
        if not isinstance(variable, EmbeddingVariable):
            raise TypeError(f"Only embedding variables have statistics; {variable!r} is not one")
    if not variables:
        raise ValueError("There are no embedding variables to compute statistics of")
    return [table for _, table in sorted({table.m_var_name: table for table in variables}.items())]


def summed_statistics(tables: Sequence[EmbeddingVariable]) -> tf.Tensor:
    """Returns int64 [tables, 13]: the integers of `TableStatistics` in its order, of all ranks or servers."""
    processes = table_parts.by_process(tables, "described by one op")
    of_parts = table_parts.on_each(processes, tables[0], native.ops.sok_table_statistics)
    if tables[0].servers.devices:
        with on_device(tables[0].servers.worker):
            return tf.add_n(of_parts)
    (numbers,) = of_parts
    if communicator().size == 1:
        return numbers
    names = exchange_names.list_of([table.m_var_name for table in tables])
    name = exchange_names.unique_name(f"statistics of {names}")
    return tf.reshape(tf.reduce_sum(agree(tf.reshape(numbers, [-1]), name), axis=0), numbers.shape)
