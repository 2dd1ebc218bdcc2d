"""Gradients of lookups: checks of their graph, their form, and Jacobians, which are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, List, NoReturn, Tuple

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat import IS_TENSORFLOW_2
from sparse_operation_kit.compat.internals import branches, func_graph, ops
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable

# The function graphs of v2 control flow.
_LOOPS = (branches.WhileCondFuncGraph, branches.WhileBodyFuncGraph)
_BRANCHES = (branches.CondBranchFuncGraph, *_LOOPS)
# Those that no gradient of a table can leave. Version 1.15 makes zeros of all that a branch takes, and so of
# handles.
_CLOSED = _LOOPS if IS_TENSORFLOW_2 else _BRANCHES

# Of the tables and of the weights of a lookup.
Gradients = Tuple[List[tf.IndexedSlices], List[tf.Tensor]]


# What computes the gradients of a lookup's tables and weights, by the type of the op that gives its outputs.
gradients_of_lookup: dict[str, Callable[[tf.Operation, Sequence[tf.Tensor]], Gradients]] = {}


def gradient_of(
    op_type: str,
) -> Callable[[Callable[..., Gradients]], Callable[..., Gradients]]:
    """Decorates the gradient function of an op that gives a lookup's outputs.

    The function takes the op and the gradients of its outputs, and returns those of tables and of weights.
    """

    def register(compute: Callable[..., Gradients]) -> Callable[..., Gradients]:
        @ops.RegisterGradient(op_type)
        def gradient(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor | tf.IndexedSlices | None]:
            if graph_ops.is_passed_on_in_branch(op):
                # TensorFlow gives what an earlier gradient took out of the branch, the plan, a gradient too.
                return graph_ops.in_order_of_inputs(op, {})
            _check_gradient_graph(op)
            tables, weights = compute(op, graph_ops.gradients_of_outputs(op, gradients)["outputs"])
            return graph_ops.in_order_of_inputs(op, {"handles": tables, "weights": weights})

        gradients_of_lookup[op_type] = compute
        return compute

    return register


def _check_gradient_graph(op: tf.Operation) -> None:
    """Refuses gradients that leave a loop, because TensorFlow makes them dense there.

    Those that leave branches take another way, except in lookups of graphs that only read.

    Args:
      op: An op of a lookup group that takes the handles of its tables.

    Raises:
      TypeError: The gradients leave a loop or a branch; the message names the variables.
    """
    op = graph_ops.operation(op)
    graph = op.graph
    leaves_function = graph is not tf.compat.v1.get_default_graph() and _is_in_branch_function(graph)
    if not leaves_function and not _is_in_branch(op._get_control_flow_context()):
        return
    names = graph_ops.table_names(op)
    raise TypeError(
        f"There is no gradient for lookups in embedding variables {names} inside tf.while_loop, or inside "
        "tf.cond in a graph that only reads: look the rows up outside and use them inside, or use "
        "tf.stop_gradient"
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


def leaves_with_gradients(graph: tf.Graph) -> bool:
    """Whether gradients of lookups made next in a graph have to leave branches or functions, and can."""
    is_inside = isinstance(graph, func_graph.FuncGraph) or _is_in_branch(graph._get_control_flow_context())
    return is_inside and not _is_closed(graph)


def _is_closed(graph: tf.Graph) -> bool:
    context = graph._get_control_flow_context()
    if context is not None and context.GetWhileContext() is not None:
        return True
    if not isinstance(graph, func_graph.FuncGraph):
        return False
    return isinstance(graph, _CLOSED) or _is_closed(graph.outer_graph)


def _is_in_branch_function(graph: tf.Graph) -> bool:
    while isinstance(graph, func_graph.FuncGraph):
        if isinstance(graph, _BRANCHES):
            return True
        graph = graph.outer_graph
    return False


def _is_in_branch(context: Any) -> bool:
    # For v1 control flow, which graphs have if TensorFlow's v2 behavior is disabled.
    while context is not None:
        if context.IsCondContext() or context.IsWhileContext():
            return True
        context = context.outer_context
    return False


@replacements.wraps("tf.GradientTape.jacobian")
def _refusing(original, self, target, sources, *args, **kwargs):
    for source in tf.nest.flatten(sources):
        if is_embedding_variable(source):
            raise TypeError(
                f"There is no Jacobian with respect to embedding variable '{source.m_var_name}', as a "
                "table has no dense form: take it with respect to the rows that a lookup returns"
            )
    return original(self, target, sources, *args, **kwargs)
