"""Optimizers of tf.compat.v1.train that count their steps, for schedules as Keras has them."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers.scalar_state import initializer_of, scalar_state


class CountsIterations:
    """For classes that inherit from it before a tf.compat.v1.train.Optimizer."""

    @property
    def iterations(self) -> tf.Variable:
        """Scalar int64 variable of the current graph: how often gradients were applied."""
        return scalar_state(self, "iterations", 0, tf.int64)

    @property
    def initializer(self) -> tf.Operation:
        """The op that initializes the optimizer's own variables: those of the current graph, made so far.

        `tf.compat.v1.global_variables_initializer()` does it too, where it is called after the last
        `apply_gradients`. Moments of embedding variables lie in their tables and stay as they are.
        """
        return initializer_of(self)

    def _current(self, value: Any) -> Any:
        """A hyper-parameter in this step: `value`, or what it gives where it is a function or a schedule."""
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
        return super()._finish([*update_ops, count], name_scope)  # type: ignore[misc]  # of the optimizer mixed with
