"""Norms of gradients that count the rows of tables on all ranks.

After the exchange each rank holds the gradients of the rows that it owns. If each rank clipped by the norm of
its own rows, ranks would scale their parts differently, and variables that all have would differ. So
`tf.linalg.global_norm`, which `tf.clip_by_global_norm` calls, and `tf.clip_by_norm` get an implementation for
tf.IndexedSlices through TensorFlow's type dispatch; the functions themselves are replaced only in version
1.15, which has no such dispatch.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.core import graph_ops, replacements
from sparse_operation_kit.core.communicator import communicator

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


@replacements.implements_for_types("tf.linalg.global_norm", {"t_list": _ANYTHING})
def _global_norm(t_list: Sequence[Any], name: str | None = None) -> tf.Tensor:
    ours = [one for one in t_list if _is_of_one_rank(one) or _is_sharded(one)]
    others = [_values(one) for one in t_list if not (_is_of_one_rank(one) or _is_sharded(one))]
    if not ours:
        return tf.linalg.global_norm(others, name)
    with tf.name_scope(name or "global_norm"):
        halves = tf.stack([tf.nn.l2_loss(one.values) for one in ours])
        half = _over_ranks(tf.reduce_sum(halves))
        others = [one for one in others if one is not None]
        if others:
            half += tf.reduce_sum(tf.stack([tf.nn.l2_loss(one) for one in others]))
        return tf.sqrt(half * 2.0)


@replacements.implements_for_types("tf.clip_by_norm", {"t": tf.IndexedSlices})
def _clip_by_norm(
    t: tf.IndexedSlices, clip_norm: Any, axes: Any = None, name: str | None = None
) -> tf.IndexedSlices:
    if _is_sharded(t) and (axes is None or 0 in _dimensions(axes)):
        with tf.name_scope(name or "clip_by_norm"):
            squares = _over_ranks(tf.reduce_sum(tf.square(t.values), axes, keepdims=True))
            values = t.values * clip_norm / tf.maximum(tf.sqrt(squares), clip_norm)
    else:
        values = tf.clip_by_norm(t.values, clip_norm, axes, name)
    return tf.IndexedSlices(values, t.indices, t.dense_shape)


def _dimensions(axes: Any) -> list[int]:
    """Returns the dimensions to sum over, as 0 and 1; `axes` may be negative."""
    known = tf.get_static_value(tf.convert_to_tensor(axes, tf.int32))
    if known is None:
        raise ValueError("clip_by_norm: axes of the gradient of an embedding variable must be constant")
    return [int(axis) % 2 for axis in known.flat]


def _is_of_one_rank(value: Any) -> bool:
    return isinstance(value, tf.IndexedSlices) and hasattr(value.indices, _OF_ONE_RANK)


def _is_sharded(value: Any) -> bool:
    """Returns whether `value` is a gradient of an embedding variable that is sharded over several ranks."""
    return (
        isinstance(value, tf.IndexedSlices)
        and communicator().size > 1
        and not tf.executing_eagerly()
        and graph_ops.comes_from_all_ranks(value.indices)
    )


def _values(value: Any) -> Any:
    return value.values if isinstance(value, tf.IndexedSlices) else value


def _over_ranks(squares: tf.Tensor) -> tf.Tensor:
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    return communicator().allreduce(squares, average=False, name=f"{scope}.squares")
