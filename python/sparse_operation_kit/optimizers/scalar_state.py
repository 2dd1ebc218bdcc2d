"""Scalar variables that an optimizer keeps beside its slots, one set per graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def scalar_state(
    optimizer: tf.compat.v1.train.Optimizer, name: str, initial_value: float, dtype: tf.DType
) -> tf.Variable:
    """The optimizer's scalar variable `name` of the current graph, made at the first call.

    It is among `optimizer.variables()` and the graph's global variables, so that initializers and savers see
    it. Its name is `<optimizer's name>/<name>` in whatever name scope the call stands.
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
    """The op that initializes the variables that `optimizer` has made in the current graph, if any.

    With a Keras optimizer that it wraps, `inner`, also those of its hyper-parameters.
    """
    hyper = [value for value in getattr(inner, "_hyper", {}).values() if isinstance(value, tf.Variable)]
    return tf.compat.v1.variables_initializer([*optimizer.variables(), *hyper], name="init_optimizer")
