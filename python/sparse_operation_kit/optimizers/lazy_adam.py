"""Adam that updates only the rows of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers import v1_rules
from sparse_operation_kit.optimizers.known_optimizer import of_v1
from sparse_operation_kit.optimizers.row_slots import make_row_slot, mean_square, one_per_row
from sparse_operation_kit.optimizers.table_update import TableUpdate


class LazyAdamOptimizer(tf.compat.v1.train.AdamOptimizer):
    """Adam that updates only the moments and weights of the rows in the batch.

    This applies to embedding variables and to ordinary variables whose gradient is tf.IndexedSlices. Ordinary
    variables with a dense gradient are trained as by tf.compat.v1.train.AdamOptimizer. The bias correction
    depends on the number of steps, not on how often a row was updated.

    Args:
      learning_rate: a number, a scalar tensor, or a function without arguments that returns one.
      beta1: decay of the first moment.
      beta2: decay of the second moment.
      epsilon: added to the square root of the second moment.
      use_locking: whether updates of ordinary variables take locks.
      name: prefix of the names of ops and variables.
      second_moment: "element": each weight has its own. "row": each row has one, the moving average of its
        gradient's mean square (FBGEMM's partial row-wise Adam), so that a row of n weights has n + 1 numbers
        of state instead of 2 n. The rows of an ordinary variable are its slices along the first dimension.

    Raises:
      ValueError: if `second_moment` is neither.
    """

    def __init__(
        self,
        learning_rate=0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "LazyAdam",
        second_moment: str = "element",
    ):
        if second_moment not in ("element", "row"):
            raise ValueError(f"second_moment must be 'element' or 'row', not {second_moment!r}")
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
        self._by_row = second_moment == "row"

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        if not self._by_row:
            super()._create_slots(var_list)
            return
        first = min(var_list, key=lambda variable: variable.name)
        for name, beta in (("beta1_power", self._beta1), ("beta2_power", self._beta2)):
            self._create_non_slot_variable(initial_value=beta, name=name, colocate_with=first)
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)
            make_row_slot(self, variable, "v")

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._row_step(grad, var) if self._by_row else super()._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> tf.Operation:
        return self._row_step(grad, handle) if self._by_row else super()._resource_apply_dense(grad, handle)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        first, second = self.get_slot(var, "m"), self.get_slot(var, "v")
        m, v, step = self._moments_and_step(grad, tf.gather(first, indices), tf.gather(second, indices))
        return tf.group(
            first.scatter_update(tf.IndexedSlices(m, indices), use_locking=self._use_locking).op,
            second.scatter_update(tf.IndexedSlices(v, indices), use_locking=self._use_locking).op,
            var.scatter_sub(tf.IndexedSlices(step, indices), use_locking=self._use_locking).op,
        )

    def _row_step(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        first, second = self.get_slot(var, "m"), self.get_slot(var, "v")
        m, v, step = self._moments_and_step(grad, tf.identity(first), tf.identity(second))
        return tf.group(
            first.assign(m, use_locking=self._use_locking).op,
            second.assign(v, use_locking=self._use_locking).op,
            var.assign_sub(step, use_locking=self._use_locking).op,
        )

    def _moments_and_step(
        self, grad: tf.Tensor, first: tf.Tensor, second: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The new moments of rows, and what their weights lose."""
        beta1, beta2, epsilon, learning_rate, beta1_power, beta2_power = (
            tf.cast(value, grad.dtype)
            for value in (
                self._beta1_t,
                self._beta2_t,
                self._epsilon_t,
                self._lr_t,
                *self._get_beta_accumulators(),
            )
        )
        alpha = learning_rate * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
        m = beta1 * first + (1 - beta1) * grad
        v = beta2 * second + (1 - beta2) * (mean_square(grad) if self._by_row else grad * grad)
        root = tf.sqrt(v)
        return m, v, alpha * m / ((tf.reshape(root, one_per_row(grad)) if self._by_row else root) + epsilon)


def table_update(optimizer: LazyAdamOptimizer, rule: str = "lazy_adam", **more: Any) -> TableUpdate:
    """Returns the update of a table for one step of the optimizer.

    Args:
      optimizer: the optimizer.
      rule: the engine's rule for one second moment a weight.
      more: hyper-parameters besides those of Adam.
    """
    hyper = {**v1_rules.adam_hyper(optimizer), **more}
    if not optimizer._by_row:
        return TableUpdate(rule, hyper)
    return TableUpdate("rowwise_adam", {"weight_decay": 0.0, **hyper})


ENTRY = of_v1(
    "sok.tf.keras.optimizers.LazyAdamOptimizer",
    LazyAdamOptimizer,
    table_update,
    {"lazy_adam": {}, "rowwise_adam": {"second_moment": "row"}},
    create_shared_state=v1_rules.create_beta_powers,
)
