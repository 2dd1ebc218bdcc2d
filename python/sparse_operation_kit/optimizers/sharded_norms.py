"""Norms and clips of tables' gradients: those of the exact gradient, one sum per row, on all ranks.

The gradient of one lookup, or of one group, names each row once. TensorFlow joins the gradients of several
lookups of a step without adding rows up that occur in more than one, so norms and clips add them up first,
as the update does. After the exchange each rank holds the gradients of the rows that it owns; if it clipped
by the norm of these alone, ranks would scale their parts differently, and variables that all have would
differ. So norms are over all ranks. They do not depend on the number of threads.

`tf.linalg.global_norm`, which `tf.clip_by_global_norm` calls, and the other functions get an implementation
for tf.IndexedSlices through TensorFlow's type dispatch; the functions themselves are replaced only in version
1.15, which has no such dispatch. Gradients of other variables go to TensorFlow's.
"""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat.tensors import with_values
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables.table_device import on_host_of

# An attribute of the row numbers of gradients whose variable is on this rank only.
_OF_ONE_RANK = "_sok_of_one_rank"
# Lists of tf.IndexedSlices and any other objects.
_ANYTHING = typing.List[typing.Union[tf.IndexedSlices, object]]  # noqa: UP006, UP007 - TensorFlow needs these


def mark_as_of_one_rank(gradient: Any) -> None:
    """Makes global norms add up a gradient over ranks, because its variable is on this rank only.

    If one rank has such a gradient in a list, every rank must. Does nothing unless it is a tf.IndexedSlices.
    """
    if isinstance(gradient, tf.IndexedSlices):
        setattr(gradient.indices, _OF_ONE_RANK, True)


@replacements.implements("tf.linalg.global_norm", types={"t_list": _ANYTHING})
def _global_norm(t_list: Sequence[Any], name: str | None = None) -> tf.Tensor:
    ours = [one for one in t_list if _is_ours(one)]
    others = [_values(one) for one in t_list if not _is_ours(one)]
    if not ours:
        return tf.linalg.global_norm(others, name)
    with tf.name_scope(name or "global_norm"):
        squares = [_squares(_with_distinct_rows(one).values, [0, 1]) for one in ours]
        half = _over_ranks(tf.reduce_sum(tf.concat(squares, axis=0))) * 0.5
        others = [one for one in others if one is not None]
        if others:
            half += tf.reduce_sum(tf.stack([tf.nn.l2_loss(one) for one in others]))
        return tf.sqrt(half * 2.0)


@replacements.implements("tf.clip_by_norm", types={"t": tf.IndexedSlices})
def _clip_by_norm(
    t: tf.IndexedSlices, clip_norm: Any, axes: Any = None, name: str | None = None
) -> tf.IndexedSlices:
    if not _is_ours(t):
        return with_values(t, tf.clip_by_norm(t.values, clip_norm, axes, name))
    dimensions = [0, 1] if axes is None else _dimensions(axes)
    with tf.name_scope(name or "clip_by_norm"):
        distinct = _with_distinct_rows(t)
        squares = _squares(distinct.values, dimensions)
        if 0 in dimensions and not _is_of_one_rank(t):
            squares = _over_ranks(squares)
        return with_values(distinct, distinct.values * clip_norm / tf.maximum(tf.sqrt(squares), clip_norm))


@replacements.implements("tf.clip_by_value", types={"t": tf.IndexedSlices})
def _clip_by_value(
    t: tf.IndexedSlices, clip_value_min: Any, clip_value_max: Any, name: str | None = None
) -> tf.IndexedSlices:
    rows = _with_distinct_rows(t) if _is_ours(t) else t
    return with_values(rows, tf.clip_by_value(rows.values, clip_value_min, clip_value_max, name))


def _dimensions(axes: Any) -> list[int]:
    """Returns the dimensions to sum over, as 0 and 1; `axes` may be negative."""
    known = tf.get_static_value(tf.convert_to_tensor(axes, tf.int32))
    if known is None:
        raise ValueError("clip_by_norm: axes of the gradient of an embedding variable must be constant")
    return [int(axis) % 2 for axis in known.flat]


def _is_ours(value: Any) -> bool:
    return _is_of_one_rank(value) or _is_of_table(value)


def _is_of_one_rank(value: Any) -> bool:
    return isinstance(value, tf.IndexedSlices) and hasattr(value.indices, _OF_ONE_RANK)


def _is_of_table(value: Any) -> bool:
    """Returns whether `value` is a gradient of an embedding variable, changed or not."""
    # What was executed eagerly has no graph, and may be an array.
    is_in_graph = isinstance(value, tf.IndexedSlices) and hasattr(value.indices, "graph")
    return is_in_graph and graph_ops.comes_from_tables(value.indices)


def _values(value: Any) -> Any:
    return value.values if isinstance(value, tf.IndexedSlices) else value


def _with_distinct_rows(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns a gradient with the sum of each row in place of its parts."""
    if hasattr(gradient.indices, "graph") and graph_ops.names_each_row_once(gradient.indices):
        return gradient
    # On a GPU the order of a sum's terms would change from run to run.
    with _on_host_of(gradient.values):
        rows, places = tf.unique(gradient.indices)
        sums = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    distinct = tf.IndexedSlices(sums, rows, gradient.dense_shape)
    if _is_of_one_rank(gradient):
        mark_as_of_one_rank(distinct)
    return distinct


def _squares(values: tf.Tensor, dimensions: Sequence[int]) -> tf.Tensor:
    """Returns sums of squares over `dimensions` of a matrix, which keep the length 1."""
    squares = tf.square(values)
    if 1 in dimensions:
        squares = tf.reduce_sum(squares, axis=1, keepdims=True)
    if 0 not in dimensions:
        return squares
    # One thread adds up a segment; tf.reduce_sum divides the rows among threads. A segment needs a row.
    with _on_host_of(values):
        padded = tf.cast(tf.pad(squares, [[0, 1], [0, 0]]), tf.float64)
        total = tf.math.segment_sum(padded, tf.zeros([tf.shape(padded)[0]], tf.int32))
        return tf.cast(total, values.dtype)


def _on_host_of(tensor: tf.Tensor) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if tf.executing_eagerly() else on_host_of(tensor)


def _over_ranks(squares: tf.Tensor) -> tf.Tensor:
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    return communicator().allreduce(squares, average=False, name=f"{scope}.squares")
