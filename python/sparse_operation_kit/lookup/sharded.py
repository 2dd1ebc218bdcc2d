"""Lookups in tables that are sharded over ranks: one op for each step, with an exchange between them.

    ids -> SokGroupRoute -> exchange -> SokGroupServe -> exchange -> SokGroupCombine -> outputs
    gradients -> SokGroupReduce -> exchange -> SokGroupSum -> gradients of this rank's rows

If an optimizer gets these gradients unchanged, or averaged over ranks, its op SokGroupSumApplyGradients
replaces SokGroupSum (see `optimizers/step_ops.py`).

Every rank runs every op in every step, even if it has no ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.compat.internals import ops
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup.gradient_graph import (
    check_gradient_graph,
    refuse_second_derivative,
    table_slices,
)
from sparse_operation_kit.ranks import exchange_names
from sparse_operation_kit.ranks.communicator import communicator


def look_up(
    arguments: dict[str, Any], exchange: Sequence[str], table_names: Sequence[str], name: str | None
) -> list[tf.Tensor]:
    """Adds the ops of a group lookup to the graph.

    Args:
      arguments: The arguments of `sok_group_lookup`.
      exchange: "rows" or "sums" for each table.
      table_names: The tables' names, in the order of the handles.
      name: The name scope of the ops.

    Returns:
      One float32 tensor for each output, of unknown shape.
    """
    handles, dims = arguments["handles"], arguments["dims"]
    exchange_name = exchange_names.unique_name(f"lookup of {exchange_names.list_of(table_names)}")
    with tf.name_scope(name or graph_ops.GROUP_LOOKUP):
        routed = native.ops.sok_group_route(**arguments, exchange=exchange)
        requests = _exchange(routed.words, routed.splits, f"{exchange_name}: ids")
        served = native.ops.sok_group_serve(handles=handles, **requests, dims=dims, exchange=exchange)
        replies = _exchange(served.words, served.splits, f"{exchange_name}: rows")
        return native.ops.sok_group_combine(
            handles=handles,
            plan=routed.plan,
            **replies,
            served=served.served,
            weights=arguments["weights"],
            num_outputs=arguments["num_outputs"],
            dims=dims,
            weighted=arguments["weighted"],
            exchange_name=exchange_name,
        )


def _exchange(words: tf.Tensor, splits: tf.Tensor, name: str) -> dict[str, tf.Tensor]:
    """Exchanges the words; returns those received and those sent, by the names of the next op's inputs.

    The words end with this rank's message to itself, which is not exchanged.
    """
    received, received_splits = communicator().exchange(words, splits, name, beside=words.op)
    return {"received": received, "received_splits": received_splits, "sent": words, "sent_splits": splits}


def _here(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor in the default graph, which may be a function that captures it."""
    return tensor if tensor.graph is tf.compat.v1.get_default_graph() else tf.identity(tensor)


@ops.RegisterGradient(graph_ops.GROUP_COMBINE)
def _group_combine_gradient(
    op: tf.Operation, *gradients: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    check_gradient_graph(op)
    dims = op.get_attr("dims")
    inputs = graph_ops.inputs_of(op)
    exchange_name = exchange_names.unique_name(f"gradient of {op.get_attr('exchange_name').decode()}")
    # An error on any rank ends the lookup on all ranks. Then no rank may start the next exchange.
    with tf.control_dependencies([_here(graph_ops.outputs_of(op)["outputs"][0])]):
        reduced = native.ops.sok_group_reduce(
            handles=inputs["handles"],
            plan=inputs["plan"],
            received=inputs["received"],
            received_splits=inputs["received_splits"],
            sent=inputs["sent"],
            sent_splits=inputs["sent_splits"],
            gradients=graph_ops.gradients_of_outputs(op, gradients)["outputs"],
            num_weights=op.get_attr("num_weights"),
            dims=dims,
            weighted=op.get_attr("weighted"),
        )
    arrived = _exchange(reduced.words, reduced.splits, exchange_name)
    summed = native.ops.sok_group_sum(
        handles=inputs["handles"], served=inputs["served"], **arrived, dims=dims
    )
    return graph_ops.in_order_of_inputs(
        op, {"handles": table_slices(summed), "weights": reduced.weight_gradients}
    )


for _op in (graph_ops.GROUP_REDUCE, graph_ops.GROUP_SUM, graph_ops.DIVIDE_GRADIENTS):
    ops.RegisterGradient(_op)(refuse_second_derivative)
for _op in (graph_ops.GROUP_ROUTE, graph_ops.GROUP_SERVE, graph_ops.GROUP_SUM_APPLY_GRADIENTS):
    ops.NotDifferentiable(_op)
