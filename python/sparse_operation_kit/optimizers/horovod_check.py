"""Tells whether Horovod has gathered the gradient of a table, which makes nonsense of it."""

from __future__ import annotations

import tensorflow as tf

from sparse_operation_kit.core import graph_ops

_GATHERS = ("HorovodAllgather", "HorovodGroupedAllgather")


def is_gathered(indices: tf.Tensor) -> bool:
    """Whether the row numbers of a gradient come from other ranks too.

    Row numbers mean something on the rank that owns the rows only. `hvd.DistributedOptimizer` and
    `hvd.allreduce` gather tf.IndexedSlices of all ranks, as is right for variables that every rank has.

    Args:
      indices: the row numbers of the gradient of an embedding variable.
    """
    return any(
        op.type in _GATHERS or any(node.op in _GATHERS for node in graph_ops.nodes_of_branches(op))
        for op in graph_ops.ops_behind(indices)
    )
