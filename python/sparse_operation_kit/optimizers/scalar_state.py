"""Scalar variables that an optimizer keeps besides its slots, one set per graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


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
            with graph.name_scope(None):
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
