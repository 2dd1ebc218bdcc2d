"""DistributedOptimizer: combines the gradients of ordinary variables over ranks."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers.combination import Combine, by_hand, combine, graphs_of
from sparse_operation_kit.optimizers.wrapper import Gradient, OptimizerWrapper

_OPS = ("sum", "average")


class DistributedOptimizer(OptimizerWrapper):
    """Wraps an optimizer: combines gradients of ordinary variables over all ranks before they are applied.

    Gradients of embedding variables are not changed, because the exchange already sums them over the ranks.
    If the loss is divided by the global batch size, then with `op="sum"` all variables train as in one
    process on the whole batch::

        loss = tf.reduce_sum(loss_of_each_sample) / global_batch_size
        optimizer = sok.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.001), op="sum")
        train_op = optimizer.minimize(loss)

    As in Horovod, `compute_gradients` combines, so that clipping before `apply_gradients` sees the gradients
    of the whole batch. All ranks must have gradients for the same variables. With one rank nothing is
    combined. For graph mode.

    Args:
      optimizer: a tf.compat.v1.train or a legacy Keras optimizer. A LossScaleOptimizer may be wrapped by this
        optimizer or wrap it.
      op: "sum" or "average". "average" divides the gradients of ordinary variables by the number of ranks,
        but not those of embedding variables. `hvd.Sum` and `hvd.Average` are accepted too.
      sparse_as_dense: whether gradients that are tf.IndexedSlices are made dense and summed, which is
        faster if they name most rows. Otherwise the slices of all ranks are gathered.
      name: prefix of the names of ops; the same on all ranks.

    Raises:
      TypeError: if `optimizer` is not an optimizer that can be wrapped.
      ValueError: if `op` is unknown.
    """

    def __init__(self, optimizer: Any, *, op: str, sparse_as_dense: bool = False, name: str | None = None):
        super().__init__(optimizer, name or f"Distributed{type(optimizer).__name__}")
        average = parse_op(op, "DistributedOptimizer") == "average"
        self._combine: Combine = functools.partial(combine, average=average, sparse_as_dense=sparse_as_dense)
        # The graphs whose gradients have been combined.
        self._combined: weakref.WeakSet[tf.Graph] = weakref.WeakSet()

    def compute_gradients(self, *args, **kwargs) -> list[tuple[Gradient, tf.Variable]]:
        """Returns the wrapped optimizer's gradients, combined over the ranks."""
        with by_hand():
            pairs = super().compute_gradients(*args, **kwargs)
        return self.combine_gradients(pairs)

    def combine_gradients(
        self, grads_and_vars: Iterable[tuple[Gradient, tf.Variable]]
    ) -> list[tuple[Gradient, tf.Variable]]:
        """Combines gradients of tf.gradients over the ranks; `compute_gradients` does this by itself.

        Args:
          grads_and_vars: pairs of a gradient or None and its variable.

        Returns:
          The pairs in their order. None stays None.
        """
        pairs = list(grads_and_vars)
        self._combined.update(graphs_of(pairs))
        return self._combine(pairs, self.get_name())

    def apply_gradients(self, grads_and_vars, global_step=None, name=None) -> tf.Operation:
        """Calls the wrapped optimizer's `apply_gradients`.

        Raises:
          ValueError: if no gradients of this graph were combined, so that ranks would apply different ones.
        """
        pairs = list(grads_and_vars)
        if any(graph not in self._combined for graph in graphs_of(pairs)):
            raise ValueError(
                "These gradients were not combined over the ranks: take them from compute_gradients of this "
                "DistributedOptimizer, or pass them through its combine_gradients first"
            )
        with by_hand():
            return super().apply_gradients(pairs, global_step, name)


def parse_op(op: Any, who: str) -> str:
    """Returns "sum" or "average" for one of these or for hvd.Sum or hvd.Average.

    Raises:
      ValueError: `op` is none of them; the message begins with `who`.
    """
    # hvd.Average is 0 and hvd.Sum is 1.
    by_value: dict[Any, str] = {**{str(name): name for name in _OPS}, 0: "average", 1: "sum"}
    if isinstance(op, bool) or not isinstance(op, (str, int)) or op not in by_value:
        raise ValueError(f"{who}: op must be 'sum' or 'average', not {op!r}")
    return by_value[op]
