"""Tells tables whose rows go by age what the global step of their graph is."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable


def told(variables: Iterable[EmbeddingVariable], after: Iterable[tf.Tensor] = ()) -> list[tf.Operation]:
    """Adds the ops that tell tables with a `GlobalStepEvict` the global step as it is when they run.

    Updates of tables and saves wait for them. An update is of the step that it reads, which the program
    counts up after it.

    Args:
      variables: Any embedding variables.
      after: What the ops wait for: of an update the lookup before it, which would else see either step.

    Returns:
      An op for each of those tables; none where the graph has no global step, so that tables count their own.
    """
    aging = [variable for variable in variables if variable.evicts_by_step]
    step = tf.compat.v1.train.get_global_step() if aging else None
    if step is None:
        return []
    with tf.name_scope("global_step_of_tables"), tf.control_dependencies(after):
        value = tf.cast(step if tf.is_tensor(step) else step.read_value(), tf.int64)
        return [native.ops.sok_table_set_global_step(variable.handle, value) for variable in aging]
