"""Combines gradients over ranks, with one policy for all optimizers, and never twice.

Gradients of ordinary variables are added up or averaged. Those of embedding variables, and of other variables
whose rows are on one rank, are sums over the ranks already; averaging divides them by the number of ranks. If
the loss is the mean over each rank's part of the batch, and all parts have the same size, averages equal the
gradients of one process on the whole batch. Norms of gradients count all ranks' rows (`sharded_norms`).
"""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Callable, List, Tuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.changes.dialect import dialect
from sparse_operation_kit.compat.tensors import with_values
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.newer_python import set_within
from sparse_operation_kit.optimizers.table_update import check_gradient
from sparse_operation_kit.optimizers.wrapper import Gradient, OptimizerWrapper
from sparse_operation_kit.ranks.communicator import Communicator, communicator
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable

Pairs = List[Tuple[Gradient, tf.Variable]]
Combine = Callable[[Iterable, str], Pairs]

# The graphs whose gradients `average` has averaged.
_averaged: weakref.WeakSet[tf.Graph] = weakref.WeakSet()
_by_hand = contextvars.ContextVar("sok_combined_by_hand", default=False)


def by_hand() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which collective training does not average gradients; the caller combines them."""
    return set_within(_by_hand, True)


def is_by_hand() -> bool:
    """Returns whether the caller is in the context of `by_hand`."""
    return _by_hand.get()


def combine(
    pairs: Iterable,
    prefix: str,
    *,
    average: bool,
    sparse_as_dense: bool = False,
    divide_sums: bool = False,
    is_sum: Callable[[Any], bool] = is_embedding_variable,
) -> Pairs:
    """Combines gradients over ranks.

    Args:
      pairs: pairs of a gradient or None and its variable.
      prefix: prefix of the collectives' names, the same on all ranks.
      average: whether the sum over ranks is divided by the number of ranks.
      sparse_as_dense: whether tf.IndexedSlices are made dense and summed, instead of gathered.
      divide_sums: whether gradients that are sums over the ranks already are divided by their number. Else
        they do not change.
      is_sum: whether the gradient of a variable is such a sum.

    Returns:
      The pairs in their order. None stays None.
    """
    ranks = communicator()
    if ranks.size == 1:
        return list(pairs)
    combined: Pairs = []
    for gradient, variable in pairs:
        if gradient is not None and is_sum(variable):
            gradient = _divided(gradient, variable) if divide_sums else gradient
        elif gradient is not None:
            name = f"{prefix}.{variable.name.partition(':')[0]}"
            if isinstance(gradient, tf.IndexedSlices) and sparse_as_dense:
                gradient = tf.convert_to_tensor(gradient)
            if isinstance(gradient, tf.IndexedSlices):
                gradient = _gathered(ranks, gradient, average, name)
            else:
                gradient = ranks.allreduce(gradient, average, name)
        combined.append((gradient, variable))
    return combined


def average(pairs: Pairs, prefix: str) -> Pairs:
    """Averages gradients over the ranks, also those of embedding variables; notes it for their graphs."""
    _averaged.update(graphs_of(pairs))
    return combine(pairs, prefix, average=True, divide_sums=True)


def graphs_of(pairs: Iterable) -> set[tf.Graph]:
    """Returns the graphs of gradients; for gradients in branches and functions, the outermost graphs.

    Eager tensors have none, nor has what TensorFlow converts to a tensor: arrays and numbers.
    """
    tensors = (
        gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient for gradient, _ in pairs
    )
    graphs = (getattr(tensor, "graph", None) for tensor in tensors)
    return {_outermost(graph) for graph in graphs if isinstance(graph, tf.Graph)}


def _outermost(graph: tf.Graph) -> tf.Graph:
    outer = getattr(graph, "outer_graph", None)
    return graph if outer is None else _outermost(outer)


def _gathered(ranks: Communicator, gradient: tf.IndexedSlices, average: bool, name: str) -> tf.IndexedSlices:
    values = gradient.values / ranks.size if average else gradient.values
    return tf.IndexedSlices(
        ranks.allgather(values, f"{name}.values"),
        ranks.allgather(gradient.indices, f"{name}.indices"),
        gradient.dense_shape,
    )


def _divided(gradient: Any, variable: tf.Variable) -> Any:
    """Returns a gradient that is a sum over the ranks, divided by their number."""
    size = communicator().size
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient / size
    if is_embedding_variable(variable):
        graph = tf.compat.v1.get_default_graph()
        is_here = gradient.values.graph is graph
        with graph.colocate_with(gradient.values.op) if is_here else contextlib.nullcontext():
            # A separate op type, which the fused update recognizes and replaces.
            values = native.ops.sok_divide_gradients(gradient.values, divisor=size)
    else:
        values = gradient.values / size
    return with_values(gradient, values)


def prepared(optimizer: Any, pairs: Sequence, are_averaged: bool) -> Sequence:
    """Returns the pairs that an optimizer is to apply. Raises ValueError if they were not averaged.

    Ordinary variables would then differ between ranks. If the program says that it has averaged
    them, those of tables are averaged here, except those that `average` has averaged: the exchange
    has summed them, and Horovod cannot average them.
    """
    if communicator().size == 1 or is_by_hand() or isinstance(optimizer, OptimizerWrapper):
        return pairs
    if are_averaged:
        return [_of_table_divided(pair) for pair in pairs]
    well_formed = [pair for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2]
    graphs = graphs_of(well_formed)
    if graphs and all(graph in _averaged for graph in graphs):
        return pairs
    has_gradients = any(gradient is not None for gradient, _ in well_formed)
    if has_gradients and dialect().averages_gradients():
        raise ValueError(
            "These gradients were not averaged over the ranks: take them from compute_gradients of an"
            " optimizer, or pass them through combine_gradients of a sok.DistributedOptimizer first. If the"
            " program has averaged those of ordinary variables itself, with hvd.allreduce, pass"
            " gradients_are_averaged=True to apply_gradients, with those of embedding variables as"
            " tf.gradients returned them"
        )
    return pairs


def _of_table_divided(pair: Any) -> Any:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not is_embedding_variable(pair[1]):
        return pair
    gradient, variable = pair
    check_gradient(variable, gradient)
    if gradient is None or graph_ops.is_averaged(gradient.values):
        return pair
    return _divided(gradient, variable), variable
