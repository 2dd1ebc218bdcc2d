"""Lookups that supply initial rows for keys without a row."""

from __future__ import annotations

import tensorflow as tf

from sparse_operation_kit.lookup.group import DenseLookup, lookup_group
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.row_assignment import assign_rows_of_all_ranks


def look_up_with_initial_rows(
    variable: EmbeddingVariable,
    keys: tf.Tensor,
    initial_rows: tf.Tensor,
    initial_value: float,
    training: bool | tf.Tensor = True,
) -> tf.Tensor:
    """Looks up rows; a key without a row gets its row of `initial_rows`.

    Over ranks two small allgathers bring new rows to their owners.

    Args:
      variable: An embedding variable.
      keys: [n], of its key_dtype. Equal keys have equal initial rows.
      initial_rows: [n, dim]. They get no gradients.
      initial_value: The variable's constant initial value. A row is new if all its columns equal it.
      training: As in `lookup_group`. If false, nothing is stored.

    Returns:
      [n, dim].
    """
    rows = lookup_group([DenseLookup(variable, keys)], training)[0]
    initial_rows = tf.stop_gradient(initial_rows)
    is_new = tf.reduce_all(tf.equal(rows, tf.constant(initial_value, tf.float32)), axis=1)
    to_store = tf.logical_and(is_new, training)
    stored = assign_rows_of_all_ranks(
        variable,
        tf.boolean_mask(keys, to_store),
        tf.boolean_mask(initial_rows, to_store),
        f"initial rows of {variable.m_var_name}",
    )

    # The gradient of a new row is that of the table's row. Updates of rows must come after their initial
    # values, also where the gradient does not depend on the rows.
    @tf.custom_gradient
    def with_initial_rows(of_table: tf.Tensor) -> tuple:
        def gradient(of_result: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([stored]):
                return tf.identity(of_result)

        with tf.control_dependencies([stored]):
            return tf.raw_ops.Select(condition=is_new, x=initial_rows, y=of_table), gradient

    return with_initial_rows(rows)
