"""Passes the graph's global step to tables that evict rows by age."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


def told(variables: Iterable[EmbeddingVariable], after: Iterable[tf.Tensor] = ()) -> list[tf.Operation]:
    """Adds ops that set the current global step in tables with a `GlobalStepEvict`.

    Updates of tables and saves wait for these ops. An update uses the global step before the program
    increments it.

    Args:
      variables: Any embedding variables.
      after: The tensors that the ops wait for. Before an update this is the lookup, which could otherwise see
        either step.

    Returns:
      One op for each such table; none if the graph has no global step, so that tables count their own steps.
    """
    aging = [variable for variable in variables if variable.evicts_by_step]
    step = tf.compat.v1.train.get_global_step() if aging else None
    if step is None:
        return []
    with tf.name_scope("global_step_of_tables"), tf.control_dependencies(after):
        value = tf.cast(step if tf.is_tensor(step) else step.read_value(), tf.int64)
        return [native.ops.sok_table_set_global_step(variable.handle, value) for variable in aging]
