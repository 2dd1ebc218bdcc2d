"""Lookups in tables that are sharded over ranks or servers: one op for each step, with an exchange between.

    ids -> SokGroupRoute -> exchange -> SokGroupServe -> exchange -> SokGroupCombine -> outputs
    gradients -> SokGroupReduce -> exchange -> SokGroupSum -> gradients of this rank's rows

If an optimizer gets these gradients unchanged, or averaged over ranks, its op SokGroupSumApplyGradients
replaces SokGroupSum (see `optimizers/step_ops.py`).

Every rank runs every op in every step, even if it has no ids.

On parameter servers an exchange is edges of the graph, one tensor from the worker to each server or back:

    ids -> SokGroupRoute -> SokGroupServe on each server -> SokGroupCombine -> outputs
    gradients -> SokGroupReduce -> SokGroupSum on each server -> SokGroupJoin -> gradients of all rows
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.compat.internals import ops
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup.gradient_graph import (
    Gradients,
    gradient_of,
    is_in_function,
    refuse_second_derivative,
    table_slices,
)
from sparse_operation_kit.ranks import exchange_names
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables import table_parts
from sparse_operation_kit.tables.table_device import on_device, on_host_of

if TYPE_CHECKING:
    from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


def look_up(
    arguments: dict[str, Any], exchange: Sequence[str], tables: Sequence[EmbeddingVariable], name: str | None
) -> list[tf.Tensor]:
    """Adds the ops of a group lookup to the graph.

    Args:
      arguments: The arguments of `sok_group_lookup`.
      exchange: "rows" or "sums" for each table.
      tables: The tables, in the order of the handles.
      name: The name scope of the ops.

    Returns:
      One float32 tensor for each output, of unknown shape.

    Raises:
      ValueError: Tables are on servers, and ops are made in a `tf.function`.
    """
    if tables[0].servers.devices:
        with tf.name_scope(name or graph_ops.GROUP_LOOKUP), on_device(tables[0].handle.device):
            return _look_up_on_servers(arguments, exchange, tables)
    handles, dims = arguments["handles"], arguments["dims"]
    names = exchange_names.list_of([table.m_var_name for table in tables])
    exchange_name = exchange_names.unique_name(f"lookup of {names}")
    with tf.name_scope(name or graph_ops.GROUP_LOOKUP):
        routed = native.ops.sok_group_route(**arguments, exchange=exchange)
        requests = _exchange(routed.words, routed.splits, f"{exchange_name}: ids")
        served = native.ops.sok_group_serve(handles=handles, **requests, dims=dims, exchange=exchange)
        replies = _exchange(served.words, served.splits, f"{exchange_name}: rows")
        return native.ops.sok_group_combine(
            handles=handles,
            plan=routed.plan,
            **replies,
            served=[served.served],
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
    return {"received": [received], "received_splits": received_splits, "sent": words, "sent_splits": splits}


def _look_up_on_servers(
    arguments: dict[str, Any], exchange: Sequence[str], tables: Sequence[EmbeddingVariable]
) -> list[tf.Tensor]:
    if is_in_function(tf.compat.v1.get_default_graph()):
        names = ", ".join(f"'{table.m_var_name}'" for table in tables)
        raise ValueError(
            f"There is no lookup in embedding variables {names} in a tf.function: they are on parameter "
            "servers, and TensorFlow runs a function in one process. Look the rows up outside, and pass them "
            "to the function"
        )
    dims = arguments["dims"]
    routed = native.ops.sok_group_route(**arguments, exchange=exchange)
    parts = table_parts.by_process(tables, "looked up in one group")
    replies = []
    for handles, request in zip(parts, _messages(routed, len(parts))):
        with on_device(handles[0].device):
            served = native.ops.sok_group_serve(
                handles=handles, **_arrived([request]), dims=dims, exchange=exchange
            )
            replies.append(served.words)
    return native.ops.sok_group_combine(
        handles=arguments["handles"],
        plan=routed.plan,
        **_arrived(replies),
        served=[],
        weights=arguments["weights"],
        num_outputs=arguments["num_outputs"],
        dims=dims,
        weighted=arguments["weighted"],
        exchange_name="",
    )


def _messages(sent: Any, servers: int) -> list[tf.Tensor]:
    """Returns the message to each server. They leave from the host, where a GPU's ops have their splits."""
    with on_host_of(sent.words):
        return tf.split(sent.words, sent.splits, num=servers)


def _arrived(messages: Sequence[tf.Tensor]) -> dict[str, Any]:
    """Returns messages from other processes, by the names of an op's inputs. Nothing is sent to oneself."""
    none = tf.constant([], tf.int32)
    return {
        "received": list(messages),
        "received_splits": none,
        "sent": tf.constant([], tf.int64),
        "sent_splits": none,
    }


def _here(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor in the default graph, which may be a function that captures it."""
    return tensor if tensor.graph is tf.compat.v1.get_default_graph() else tf.identity(tensor)


@gradient_of(graph_ops.GROUP_COMBINE)
def _gradients_of_combine(op: tf.Operation, gradients: Sequence[tf.Tensor]) -> Gradients:
    inputs = graph_ops.inputs_of(op)
    if not inputs["served"]:
        return _gradients_on_servers(graph_ops.operation(op), gradients)
    exchange_name = exchange_names.unique_name(f"gradient of {op.get_attr('exchange_name').decode()}")
    # An error on any rank ends the lookup on all ranks. Then no rank may start the next exchange.
    with tf.control_dependencies([_here(graph_ops.outputs_of(op)["outputs"][0])]):
        reduced = _reduced(op, gradients)
    arrived = _exchange(reduced.words, reduced.splits, exchange_name)
    summed = native.ops.sok_group_sum(
        handles=inputs["handles"], served=inputs["served"][0], **arrived, dims=op.get_attr("dims")
    )
    return table_slices(summed), reduced.weight_gradients


def _reduced(op: tf.Operation, gradients: Sequence[tf.Tensor]) -> Any:
    """Adds the op that sums the gradients of a lookup's outputs by the rows that it requested."""
    inputs = graph_ops.inputs_of(op)
    return native.ops.sok_group_reduce(
        handles=inputs["handles"],
        plan=inputs["plan"],
        received=inputs["received"],
        received_splits=inputs["received_splits"],
        sent=inputs["sent"],
        sent_splits=inputs["sent_splits"],
        gradients=gradients,
        num_weights=op.get_attr("num_weights"),
        dims=op.get_attr("dims"),
        weighted=op.get_attr("weighted"),
    )


def _gradients_on_servers(op: tf.Operation, gradients: Sequence[tf.Tensor]) -> Gradients:
    if op.graph is not tf.compat.v1.get_default_graph():
        raise TypeError(
            f"There is no gradient for lookups in embedding variables {graph_ops.table_names(op)} inside a "
            "tf.cond of functions: they are on parameter servers, and TensorFlow would send the state of the "
            "lookup between processes. Look the rows up outside and use them inside, or call "
            "tf.compat.v1.disable_control_flow_v2() before"
        )
    dims = op.get_attr("dims")
    inputs = graph_ops.inputs_of(op)
    with on_device(op.device):
        reduced = _reduced(op, gradients)
    messages = _messages(reduced, len(inputs["received"]))
    summed = []
    for reply, message in zip(inputs["received"], messages):
        with on_device(reply.device):
            summed.append(
                native.ops.sok_group_sum(
                    handles=graph_ops.handles_of(reply.op),
                    served=_here(graph_ops.outputs_of(reply.op)["served"]),
                    **_arrived([message]),
                    dims=dims,
                )
            )
    with on_host_of(inputs["plan"]):
        joined = native.ops.sok_group_join(
            plan=inputs["plan"],
            part_indices=[indices for part in summed for indices in part.indices],
            part_values=[values for part in summed for values in part.values],
            num_tables=len(dims),
            dims=dims,
        )
    return table_slices(joined), reduced.weight_gradients


for _op in (graph_ops.GROUP_REDUCE, graph_ops.GROUP_SUM, graph_ops.GROUP_JOIN, graph_ops.DIVIDE_GRADIENTS):
    ops.RegisterGradient(_op)(refuse_second_derivative)
for _op in (graph_ops.GROUP_ROUTE, graph_ops.GROUP_SERVE, graph_ops.GROUP_SUM_APPLY_GRADIENTS):
    ops.NotDifferentiable(_op)
