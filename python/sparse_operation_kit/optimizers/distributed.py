"""Gradients of ordinary variables, combined over ranks."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers.combination import by_hand, combine, graphs_of
from sparse_operation_kit.optimizers.wrapper import Gradient, OptimizerWrapper

_OPS = ("sum", "average")


class DistributedOptimizer(OptimizerWrapper):
    """Wraps an optimizer: gradients of ordinary variables are combined over all ranks before it applies them.

    Gradients of embedding variables are left alone: their tables sum what all ranks send them. With a loss
    that is divided by the global batch size, and `op="sum"`, all variables train as in one process on the
    whole batch::

        loss = tf.reduce_sum(loss_of_each_sample) / global_batch_size
        optimizer = sok.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.001), op="sum")
        train_op = optimizer.minimize(loss)

    As with Horovod's, `compute_gradients` is what combines, so that clipping between it and `apply_gradients`
    sees the gradients of the whole batch. Every rank gives the same variables a gradient. At one rank
    nothing is combined. For graph mode.

    Args:
      optimizer: a tf.compat.v1.train or a legacy Keras optimizer; a LossScaleOptimizer may be inside or
        outside.
      op: "sum", or "average", which divides by the number of ranks the gradients of ordinary variables, and
        not those of embedding variables. `hvd.Sum` and `hvd.Average` are understood.
      sparse_as_dense: whether gradients that are tf.IndexedSlices are made dense and summed, which is
        faster where they name most rows. Otherwise the slices of all ranks are gathered.
      name: prefix of the names of ops; the same on all ranks.

    Raises:
      TypeError: if `optimizer` is not an optimizer that can be wrapped.
      ValueError: if `op` is another one.
    """

    def __init__(self, optimizer: Any, *, op: str, sparse_as_dense: bool = False, name: str | None = None):
        super().__init__(optimizer, name or f"Distributed{type(optimizer).__name__}")
        self._average = _parse_op(op) == "average"
        self._sparse_as_dense = sparse_as_dense
        # The graphs for which gradients have been combined.
        self._combined: weakref.WeakSet[tf.Graph] = weakref.WeakSet()

    def compute_gradients(self, *args, **kwargs) -> list[tuple[Gradient, tf.Variable]]:
        """As the wrapped optimizer's, combined over the ranks."""
        with by_hand():
            pairs = super().compute_gradients(*args, **kwargs)
        return self.combine_gradients(pairs)

    def combine_gradients(
        self, grads_and_vars: Iterable[tuple[Gradient, tf.Variable]]
    ) -> list[tuple[Gradient, tf.Variable]]:
        """Combines gradients from tf.gradients over the ranks; `compute_gradients` does so by itself.

        Args:
          grads_and_vars: pairs of a gradient or None and its variable.

        Returns:
          The pairs in their order. None stays None.
        """
        pairs = list(grads_and_vars)
        self._combined.update(graphs_of(pairs))
        return combine(pairs, self.get_name(), average=self._average, sparse_as_dense=self._sparse_as_dense)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None) -> tf.Operation:
        """As the wrapped optimizer's.

        Raises:
          ValueError: if gradients of this graph were never combined, so that each rank would apply its own.
        """
        pairs = list(grads_and_vars)
        if any(graph not in self._combined for graph in graphs_of(pairs)):
            raise ValueError(
                "These gradients were not combined over the ranks: take them from compute_gradients of this "
                "DistributedOptimizer, or pass them through its combine_gradients first"
            )
        with by_hand():
            return super().apply_gradients(pairs, global_step, name)


def _parse_op(op: Any) -> str:
    # Horovod's operations are numbers, whose names its module knows.
    by_value = {str(name): name for name in _OPS} | {0: "average", 1: "sum"}
    if isinstance(op, bool) or not isinstance(op, (str, int)) or op not in by_value:
        raise ValueError(f"DistributedOptimizer: op must be 'sum' or 'average', not {op!r}")
    return by_value[op]
