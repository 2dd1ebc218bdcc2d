"""Lets TensorFlow's and Keras' optimizers train embedding variables.

The module wraps `apply_gradients` of the optimizers' base classes. A call without embedding variables and
dense tables goes to the original with unchanged pairs.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.graphs import graph_keys, graph_ops
from sparse_operation_kit.optimizers import combination, dense_updates, routing
from sparse_operation_kit.optimizers.mapping import find_known
from sparse_operation_kit.optimizers.table_update import check_gradient
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.ranks.exchange_names import list_of
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable
from sparse_operation_kit.tables.table_device import on_host_of


def _with_tables(route: Callable[[Any, Sequence[tf.Variable]], contextlib.AbstractContextManager]):
    """Wraps apply_gradients so that it runs inside `route` when embedding variables take part.

    Dense tables have a route of their own.
    """

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def apply_gradients(self, grads_and_vars, *args, gradients_are_averaged=False, **kwargs):
            if not isinstance(grads_and_vars, (list, tuple)):
                # A zip can be iterated only once, and the original iterates over it too.
                grads_and_vars = list(grads_and_vars)
            grads_and_vars = with_slices(grads_and_vars)
            grads_and_vars = combination.prepared(self, grads_and_vars, gradients_are_averaged)
            tables = _check_tables(grads_and_vars)
            with contextlib.ExitStack() as routes:
                if tables:
                    routes.enter_context(route(self, tables))
                if any(dense_updates.is_dense_table(variable) for _, variable in _pairs(grads_and_vars)):
                    routes.enter_context(dense_updates.routed(self))
                return original(self, grads_and_vars, *args, **kwargs)

        return apply_gradients

    return wrap


def _check_tables(grads_and_vars: Sequence) -> list[tf.Variable]:
    """Returns the embedding variables of the pairs and checks their gradients."""
    tables = []
    for gradient, variable in _pairs(grads_and_vars):
        if is_embedding_variable(variable):
            check_gradient(variable, gradient)
            tables.append(variable)
    return tables


def _pairs(grads_and_vars: Sequence) -> list[Sequence]:
    """The pairs without malformed ones, which TensorFlow refuses."""
    return [pair for pair in grads_and_vars if isinstance(pair, (list, tuple)) and len(pair) == 2]


@replacements.wraps("tf.keras.optimizers.legacy.Optimizer.get_slot")
def _without_slots(original, self, var, slot_name):
    # Slots of a table are in its rows; there is no slot variable to return.
    return None if is_embedding_variable(var) else original(self, var, slot_name)


@replacements.wraps("tf.compat.v1.train.SyncReplicasOptimizer.apply_gradients")
def _without_tables(original, self, grads_and_vars, *args, **kwargs):
    grads_and_vars = list(grads_and_vars)
    tables = [variable for _, variable in _pairs(grads_and_vars) if is_embedding_variable(variable)]
    if tables:
        names = list_of([table.m_var_name for table in tables])
        raise ValueError(
            f"tf.compat.v1.train.SyncReplicasOptimizer cannot train the embedding variables {names}: it "
            "averages gradients of several steps by row number, and a row's number may change between "
            "steps. Use the optimizer that it wraps for them (sok.split_embedding_variable_from_others), "
            "which applies each worker's gradients as they come; or train synchronously on ranks, with "
            "sok.DistributedOptimizer"
        )
    return original(self, grads_and_vars, *args, **kwargs)


@contextlib.contextmanager
def _refuse(optimizer: Any, tables: Sequence[tf.Variable]):
    find_known(optimizer, tables[0])
    yield


replacements.implements("tf.compat.v1.train.Optimizer.apply_gradients")(_with_tables(routing.v1_routed))
replacements.implements("tf.keras.optimizers.legacy.Optimizer.apply_gradients")(
    _with_tables(routing.keras_routed)
)
replacements.implements("tf.keras.optimizers.Optimizer.apply_gradients")(_with_tables(_refuse))


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
