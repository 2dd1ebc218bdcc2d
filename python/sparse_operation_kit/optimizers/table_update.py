"""One optimizer step on a table: which kernel, with which hyper-parameters, on which rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core import global_step, graph_ops
from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.optimizers.horovod_check import is_gathered

_OWNER_ATTRIBUTE = "_sok_optimizer_and_kernel"


@dataclasses.dataclass(frozen=True)
class TableUpdate:
    """What an optimizer's step is on a table.

    Attributes:
      kernel: the name of a rule of `cc/optimizers`.
      hyper: its hyper-parameters by name; Python numbers or scalar tensors of any float dtype.
    """

    kernel: str
    hyper: Mapping[str, Any]

    def packed_hyper(self) -> tf.Tensor:
        """The hyper-parameters as the kernel takes them: a float32 vector.

        Raises:
          ValueError: if `hyper` has other names than the rule.
        """
        names = list(native.optimizer_rules()[self.kernel]["hyper"])
        if set(names) != set(self.hyper):
            raise ValueError(f"Rule '{self.kernel}' takes {names}, not {list(self.hyper)}")
        return tf.stack([tf.cast(self.hyper[name], tf.float32) for name in names], name="hyper")


def claim_table(variable: tf.Variable, optimizer: Any, kernel: str) -> None:
    """Notes that `optimizer` trains `variable` through `kernel`.

    Moments and accumulators lie in the table's rows, where there is room for those of one optimizer.

    Raises:
      ValueError: if the variable is trained through another kernel already, or through this one by another
        optimizer and the kernel keeps state.
    """
    owner, its_kernel = getattr(variable, _OWNER_ATTRIBUTE, (optimizer, kernel))
    # A rule without slots keeps nothing between steps, so several optimizers may share a table through it.
    has_state = bool(native.optimizer_rules()[kernel]["slots"])
    if its_kernel != kernel or (owner is not optimizer and has_state):
        raise ValueError(
            f"Embedding variable '{variable.m_var_name}' is trained by a {type(owner).__name__} already, and"
            f" its rows carry that one's state. A {type(optimizer).__name__} cannot train it too: use one"
            " optimizer object for all losses of an embedding variable."
        )
    setattr(variable, _OWNER_ATTRIBUTE, (owner, kernel))


def apply_to_table(
    variable: tf.Variable, gradient: tf.IndexedSlices, kernel: str, hyper: tf.Tensor
) -> tf.Operation:
    """The op that makes one step on the rows of `variable` that `gradient` names.

    Args:
      variable: an embedding variable.
      gradient: `values` float32 [n, dim] for the row numbers `indices` [n]; rows may repeat.
      kernel: the name of a kernel.
      hyper: float32 vector, the kernel's hyper-parameters.
    """
    if gradient.values.dtype != variable.dtype.base_dtype:
        raise TypeError(
            f"The gradient of embedding variable '{variable.m_var_name}' is {gradient.values.dtype.name},"
            f" not {variable.dtype.base_dtype.name}"
        )
    with tf.control_dependencies(global_step.told([variable], after=[gradient.indices])):
        return native.ops.sok_apply_gradients(
            handle=variable.handle,
            indices=tf.cast(gradient.indices, tf.int64),
            values=gradient.values,
            hyper=hyper,
            optimizer=kernel,
            indices_unique=graph_ops.names_each_row_once(gradient.indices),
        )


def check_gradient(variable: tf.Variable, gradient: Any) -> None:
    """Refuses what cannot be the gradient of an embedding variable.

    Raises:
      TypeError: unless `gradient` is None or tf.IndexedSlices.
      ValueError: if Horovod has gathered it from all ranks.
    """
    if gradient is None:
        return
    who = f"The gradient of embedding variable '{variable.m_var_name}'"
    if not isinstance(gradient, tf.IndexedSlices):
        raise TypeError(
            f"{who} must be tf.IndexedSlices, not {type(gradient).__name__}: a table has no dense form"
        )
    if communicator().size > 1 and is_gathered(gradient.indices):
        raise ValueError(
            f"{who} went through Horovod's allreduce. Its table sums what all ranks send it: use"
            " sok.DistributedOptimizer in place of hvd.DistributedOptimizer, or reduce the gradients of other"
            " variables only (sok.split_embedding_variable_from_others)"
        )
