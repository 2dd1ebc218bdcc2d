"""Gradients of lookups: where they can be taken, and what they are."""

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph


def check_gradient_graph(op: tf.Operation) -> None:
    """Refuses gradients that leave a function's graph or a branch, where TensorFlow wants them dense.

    `op` is a group's op whose first inputs are the handles of its tables.

    Raises:
      TypeError: They do; the message names the variables.
    """
    # A gradient tape passes a stand-in for the op, but its tensors are real.
    op = op.outputs[0].op
    graph = op.graph
    in_function = isinstance(graph, func_graph.FuncGraph)
    leaves_function = in_function and graph is not tf.compat.v1.get_default_graph()
    if not leaves_function and not _is_in_branch(op):
        return
    outside = {id(inner): outer for outer, inner in graph.captures} if in_function else {}
    handles = [outside.get(id(handle), handle) for handle in op.inputs[: op.get_attr("num_tables")]]
    names = sorted(_source(handle).name for handle in handles)
    raise TypeError(
        f"There is no gradient for lookups in embedding variables {names} inside of tf.cond, tf.while_loop "
        "or tf.function: look the rows up outside and take them in, or use tf.stop_gradient"
    )


def table_slices(result: Any) -> list[tf.IndexedSlices]:
    """The gradients of a group's tables, of an op with `values` and row numbers, `indices`, for each."""
    return [
        tf.IndexedSlices(values, indices)
        for values, indices in zip(result.values, result.indices, strict=True)
    ]


def _source(handle: tf.Tensor) -> tf.Operation:
    """The op that made a handle, before control flow passed it on."""
    op = handle.op
    while op.type in ("Switch", "Enter", "Identity"):
        op = op.inputs[0].op
    return op


def _is_in_branch(op: tf.Operation) -> bool:
    # Only where control flow is not made of functions: in graphs without TensorFlow's v2 behavior.
    context = op._get_control_flow_context()
    while context is not None:
        if context.IsCondContext():
            return True
        context = context.outer_context
    return False
