"""Scalar variables that an optimizer keeps besides its slots, one set per graph: step counters and others."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import tensorflow as tf

from sparse_operation_kit.graphs import graph_keys
from sparse_operation_kit.tables.table_device import beside_rows


def scalar_state(
    optimizer: tf.compat.v1.train.Optimizer, name: str, initial_value: float, dtype: tf.DType
) -> tf.Variable:
    """Returns the optimizer's scalar variable `name` of the current graph, created at the first call.

    It is one of `optimizer.variables()` and of the graph's global variables, so that initializers and savers
    include it. Its name is `<optimizer's name>/<name>`, whatever the current name scope is.
    """
    with tf.init_scope():
        graph = tf.compat.v1.get_default_graph()
        variable = optimizer._get_non_slot_variable(name, graph=graph)
        if variable is None:
            tables = [one for one in graph_keys.embedding_variables(graph) if one.servers.devices]
            with graph.name_scope(None), beside_rows(tables) if tables else contextlib.nullcontext():
                variable = tf.compat.v1.Variable(
                    initial_value,
                    dtype=dtype,
                    trainable=False,
                    use_resource=True,
                    name=f"{optimizer.get_name()}/{name}",
                )
            optimizer._non_slot_dict[(name, graph)] = variable
    return variable


def initializer_of(optimizer: tf.compat.v1.train.Optimizer, inner: Any = None) -> tf.Operation:
    """Returns an op that initializes the variables that `optimizer` has created so far in the current graph.

    If `inner` is a wrapped Keras optimizer, the op also initializes the variables of its hyper-parameters.
    """
    hyper = [value for value in getattr(inner, "_hyper", {}).values() if isinstance(value, tf.Variable)]
    return tf.compat.v1.variables_initializer([*optimizer.variables(), *hyper], name="init_optimizer")


class CountsIterations:
    """A mixin that counts steps; list it before the tf.compat.v1.train.Optimizer among the base classes."""

    @property
    def iterations(self) -> tf.Variable:
        """The number of steps, a scalar int64 variable of the current graph."""
        return scalar_state(self, "iterations", 0, tf.int64)

    @property
    def initializer(self) -> tf.Operation:
        """An op that initializes the variables that the optimizer has created so far in the current graph.

        `tf.compat.v1.global_variables_initializer()` initializes them too, if it is called after the last
        `apply_gradients`. Moments of embedding variables are in their tables and do not change.
        """
        return initializer_of(self)

    def _current(self, value: Any) -> Any:
        """Returns a hyper-parameter for this step: `value` or, for a function or a schedule, its result."""
        if not callable(value):
            return value
        try:
            inspect.signature(value).bind()
        except TypeError:
            return value(self.iterations)
        return value()

    def _finish(self, update_ops: list, name_scope: str) -> tf.Operation:
        with tf.control_dependencies(update_ops):
            count = self.iterations.assign_add(1, read_value=False)
        return super()._finish([*update_ops, count], name_scope)  # type: ignore[misc]  # the optimizer class
