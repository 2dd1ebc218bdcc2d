"""Tells whether Horovod has gathered the gradient of a table, which makes nonsense of it."""

from __future__ import annotations

import tensorflow as tf

_GATHERS = ("HorovodAllgather", "HorovodGroupedAllgather")
_CONDITIONALS = ("If", "StatelessIf")


def is_gathered(indices: tf.Tensor) -> bool:
    """Whether the row numbers of a gradient come from other ranks too.

    Row numbers mean something on the rank that owns the rows only. `hvd.DistributedOptimizer` and
    `hvd.allreduce` gather tf.IndexedSlices of all ranks, as is right for variables that every rank has.

    Args:
      indices: the row numbers of the gradient of an embedding variable.
    """
    waiting, seen = [indices.op], set()
    while waiting:
        op = waiting.pop()
        # The gradient begins at an op of ours: the model lies behind it.
        if op in seen or op.type.startswith("Sok"):
            continue
        seen.add(op)
        if op.type in _GATHERS or (op.type in _CONDITIONALS and _branches_gather(op)):
            return True
        waiting.extend(tensor.op for tensor in op.inputs)
    return False


def _branches_gather(conditional: tf.Operation) -> bool:
    branches = {conditional.get_attr(name).name for name in ("then_branch", "else_branch")}
    functions = conditional.graph.as_graph_def().library.function
    return any(
        node.op in _GATHERS
        for function in functions
        if function.signature.name in branches
        for node in function.node_def
    )
