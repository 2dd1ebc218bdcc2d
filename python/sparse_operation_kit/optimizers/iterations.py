"""A step counter for optimizers of tf.compat.v1.train, for Keras schedules."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers.scalar_state import initializer_of, scalar_state


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
