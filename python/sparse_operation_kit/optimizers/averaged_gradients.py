"""Averages of gradients over the ranks.

Gradients of ordinary variables are averaged over the ranks. Gradients of embedding variables, which the
exchange has summed, are divided by the number of ranks. If the loss is the mean over each rank's part of the
batch, and all parts have the same size, the gradients equal those of one process on the whole batch. Norms of
the gradients count all ranks' rows (`sharded_norms`).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.changes.dialect import dialect
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.optimizers import apply_gradients
from sparse_operation_kit.optimizers.combination import Pairs, combine, graphs_of, is_by_hand
from sparse_operation_kit.optimizers.table_update import check_gradient
from sparse_operation_kit.optimizers.wrapper import OptimizerWrapper
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable

# The graphs whose gradients have been averaged.
_averaged: weakref.WeakSet[tf.Graph] = weakref.WeakSet()


def average(pairs: Pairs, prefix: str) -> Pairs:
    """Averages gradients over the ranks.

    Args:
      pairs: pairs of a gradient or None and its variable.
      prefix: prefix of the collectives' names, the same on all ranks.
    """
    _averaged.update(graphs_of(pairs))
    combined = combine(pairs, prefix, average=True, sparse_as_dense=False)
    return [
        (divided(gradient), variable)
        if gradient is not None and is_embedding_variable(variable)
        else (gradient, variable)
        for gradient, variable in combined
    ]


def divided(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns an embedding variable's gradient, a sum over the ranks, divided by their number."""
    graph = tf.compat.v1.get_default_graph()
    is_here = gradient.values.graph is graph
    beside = graph.colocate_with(gradient.values.op) if is_here else contextlib.nullcontext()
    with beside:
        # A separate op type, which the fused update recognizes and replaces.
        values = native.ops.sok_divide_gradients(gradient.values, divisor=communicator().size)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def _prepared(optimizer: Any, pairs: Sequence, are_averaged: bool) -> Sequence:
    """Refuses gradients that were not averaged, as ordinary variables would then differ between ranks.

    If the program says that it has averaged them, those of tables are averaged here, except those that
    `average` has averaged: the exchange has summed them, and Horovod cannot average them.
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
    return divided(gradient), variable


apply_gradients.add_preparation(_prepared)
