"""Combines gradients over ranks, and keeps them from being combined twice."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator
from typing import List, Tuple

import tensorflow as tf

from sparse_operation_kit.optimizers.wrapper import Gradient
from sparse_operation_kit.ranks.communicator import Communicator, communicator
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable

Pairs = List[Tuple[Gradient, tf.Variable]]

_by_hand = contextvars.ContextVar("sok_combined_by_hand", default=False)


@contextlib.contextmanager
def by_hand() -> Iterator[None]:
    """Returns a context in which collective training does not average gradients; the caller combines them."""
    token = _by_hand.set(True)
    try:
        yield
    finally:
        _by_hand.reset(token)


def is_by_hand() -> bool:
    """Returns whether the caller is in the context of `by_hand`."""
    return _by_hand.get()


def combine(pairs: Iterable, prefix: str, *, average: bool, sparse_as_dense: bool) -> Pairs:
    """Combines the gradients of ordinary variables over ranks; those of embedding variables do not change.

    Args:
      pairs: pairs of a gradient or None and its variable.
      prefix: prefix of the collectives' names, the same on all ranks.
      average: whether the sum over ranks is divided by the number of ranks.
      sparse_as_dense: whether tf.IndexedSlices are made dense and summed, instead of gathered.

    Returns:
      The pairs in their order. None stays None.
    """
    ranks = communicator()
    if ranks.size == 1:
        return list(pairs)
    combined: Pairs = []
    for gradient, variable in pairs:
        if gradient is not None and not is_embedding_variable(variable):
            name = f"{prefix}.{variable.name.partition(':')[0]}"
            if isinstance(gradient, tf.IndexedSlices) and sparse_as_dense:
                gradient = tf.convert_to_tensor(gradient)
            if isinstance(gradient, tf.IndexedSlices):
                gradient = _gathered(ranks, gradient, average, name)
            else:
                gradient = ranks.allreduce(gradient, average, name)
        combined.append((gradient, variable))
    return combined


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
