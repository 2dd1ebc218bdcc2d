"""Dense forms of tables' gradients: a row for each row number of a table with a capacity, on one rank.

Functions that take whole tensors, such as `tf.concat` and `tf.summary.histogram`, convert a gradient with
TensorFlow's conversion of tf.IndexedSlices. A table's gradient has no dense shape, so the table gives it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.graphs import graph_keys, graph_ops
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable
from sparse_operation_kit.tables.table_device import on_host_of


@replacements.implements("tf.IndexedSlices")
def _dense(gradient: tf.IndexedSlices, dtype: tf.DType | None, name: str | None) -> Any:
    """Returns a table's gradient as a tensor [capacity, dim], by row number.

    Raises:
      NotImplementedError: The table has no such form. TensorFlow drops the text of a TypeError or ValueError
        if it converts a list of tensors.
    """
    # What was executed eagerly has no graph, and may be an array.
    if gradient.dense_shape is not None or not hasattr(gradient.indices, "graph"):
        return NotImplemented
    tables = graph_ops.tables_of_gradient(gradient.indices)
    if not tables or (dtype is not None and not tf.as_dtype(dtype).is_compatible_with(gradient.dtype)):
        return NotImplemented
    capacity = _capacity(tables)
    with on_host_of(gradient.values):
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, capacity, name=name)


def _capacity(tables: list[tf.Operation]) -> int:
    """Returns the number of rows of a gradient's table."""
    variables = graph_keys.embedding_variables(tables[0].graph)
    capacities = {variable.handle.op: variable.capacity for variable in variables}
    capacity, size = capacities.get(tables[0]), communicator().size
    if capacity is not None and len(tables) == size == 1:
        return capacity
    if len(tables) > 1:
        why = "it is of several tables"
    elif size > 1:
        why = f"the table's rows are divided among {size} ranks"
    else:
        why = "a table without a capacity has no number of rows"
    names = ", ".join(f"'{table.name}'" for table in tables)
    raise NotImplementedError(
        f"The gradient of embedding variable {names} has no dense form, as {why}. Compute with the `values` "
        "of the tf.IndexedSlices; to average several, concatenate their values and their indices, and divide "
        "the values by their number"
    )


def with_slices(grads_and_vars: Any) -> Any:
    """Returns pairs whose dense gradients of tables are tf.IndexedSlices; other pairs stay as they are."""
    if not any(_is_dense(pair) for pair in grads_and_vars):
        return grads_and_vars
    return [(_slices(pair[0]), pair[1]) if _is_dense(pair) else pair for pair in grads_and_vars]


def _is_dense(pair: Any) -> bool:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return False
    gradient, variable = pair
    if not (is_embedding_variable(variable) and isinstance(gradient, tf.Tensor)):
        return False
    has_dense_form = variable.capacity is not None and communicator().size == 1
    return has_dense_form and gradient.shape.is_compatible_with([variable.capacity, variable.dim])


def _slices(gradient: tf.Tensor) -> tf.IndexedSlices:
    """Returns the rows that are not zero: a row number without a key has no gradient."""
    with on_host_of(gradient):
        rows = tf.where(tf.reduce_any(tf.not_equal(gradient, 0), axis=1))[:, 0]
        return tf.IndexedSlices(tf.gather(gradient, rows), rows)
