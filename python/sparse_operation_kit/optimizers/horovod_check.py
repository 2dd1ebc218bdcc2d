"""Detects table gradients that Horovod has gathered over ranks, which makes them wrong."""

from __future__ import annotations

import tensorflow as tf

from sparse_operation_kit.graphs import graph_ops

_GATHERS = ("HorovodAllgather", "HorovodGroupedAllgather")


def is_gathered(indices: tf.Tensor) -> bool:
    """Returns whether Horovod has gathered the row numbers of a gradient from all ranks.

    Row numbers are valid only on the rank that owns the rows. `hvd.DistributedOptimizer` and `hvd.allreduce`
    gather the tf.IndexedSlices of all ranks, which is right only for variables that every rank holds.

    Args:
      indices: the row numbers of the gradient of an embedding variable.
    """
    return any(
        op.type in _GATHERS or any(node.op in _GATHERS for node in graph_ops.nodes_of_branches(op))
        for op in graph_ops.ops_behind(indices)
    )
