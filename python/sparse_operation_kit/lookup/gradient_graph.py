"""Gradients of lookups: checks of their graph, their form, and Jacobians, which are refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat.internals import branches, func_graph
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable

# The function graphs of v2 control flow.
_BRANCHES = (branches.CondBranchFuncGraph, branches.WhileCondFuncGraph, branches.WhileBodyFuncGraph)


def check_gradient_graph(op: tf.Operation) -> None:
    """Refuses gradients that leave a branch or a loop, because TensorFlow makes them dense there.

    Args:
      op: An op of a lookup group that takes the handles of its tables.

    Raises:
      TypeError: The gradients leave a branch or a loop; the message names the variables.
    """
    op = graph_ops.operation(op)
    graph = op.graph
    leaves_function = graph is not tf.compat.v1.get_default_graph() and _is_in_branch_function(graph)
    if not leaves_function and not _is_in_branch(op):
        return
    names = graph_ops.table_names(op)
    raise TypeError(
        f"There is no gradient for lookups in embedding variables {names} inside tf.cond or tf.while_loop: "
        "look the rows up outside and use them inside, or use tf.stop_gradient"
    )


def refuse_second_derivative(op: tf.Operation, *gradients: tf.Tensor) -> NoReturn:
    """The gradient function of ops that compute gradients of tables or of a lookup's weights.

    Raises:
      LookupError: Always; the message names the variables if the op knows them.
    """
    del gradients
    raise LookupError(
        f"There is no second derivative through lookups in embedding variables {graph_ops.table_names(op)}: "
        "their gradient cannot be differentiated again. Use tf.stop_gradient on the gradient"
    )


def table_slices(result: Any) -> list[tf.IndexedSlices]:
    """Returns the gradients of a group's tables from an op's outputs `values` and `indices` (row numbers)."""
    return [tf.IndexedSlices(values, indices) for values, indices in zip(result.values, result.indices)]


def is_in_function(graph: tf.Graph) -> bool:
    """Whether a graph is of a `tf.function`, or of a branch or a loop in one."""
    while isinstance(graph, func_graph.FuncGraph):
        if not isinstance(graph, _BRANCHES):
            return True
        graph = graph.outer_graph
    return False


def _is_in_branch_function(graph: tf.Graph) -> bool:
    while isinstance(graph, func_graph.FuncGraph):
        if isinstance(graph, _BRANCHES):
            return True
        graph = graph.outer_graph
    return False


def _is_in_branch(op: tf.Operation) -> bool:
    # For v1 control flow, which graphs have if TensorFlow's v2 behavior is disabled.
    context = op._get_control_flow_context()
    while context is not None:
        if context.IsCondContext() or context.IsWhileContext():
            return True
        context = context.outer_context
    return False


@replacements.implements("tf.GradientTape.jacobian")
def _refusing(original: Callable) -> Callable:
    @functools.wraps(original)
    def jacobian(self, target, sources, *args, **kwargs):
        for source in tf.nest.flatten(sources):
            if is_embedding_variable(source):
                raise TypeError(
                    f"There is no Jacobian with respect to embedding variable '{source.m_var_name}', as a "
                    "table has no dense form: take it with respect to the rows that a lookup returns"
                )
        return original(self, target, sources, *args, **kwargs)

    return jacobian
