"""DeepRec's Adam that updates only the rows of the batch, with separate step counters for each variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from sparse_operation_kit.compat.tensors import fit_slice_of_slot
from sparse_operation_kit.optimizers.known_optimizer import of_v1
from sparse_operation_kit.optimizers.row_slots import UpdatesAlike
from sparse_operation_kit.optimizers.scalar_state import scalar_state
from sparse_operation_kit.optimizers.table_update import TableUpdate, has_rows
from sparse_operation_kit.ranks.communicator import communicator


class _TablePowers(NamedTuple):
    """A table's powers in a step, and whether its gradient has a row on this rank."""

    powers: tuple[tf.Variable, tf.Variable]
    has_rows: tf.Tensor


class AdamAsyncOptimizer(UpdatesAlike):
    """DeepRec's `tf.train.AdamAsyncOptimizer`, for embedding and ordinary variables.

    With gradient g, moments m and v, and powers p1 and p2 that start as beta1 and beta2::

        alpha = learning_rate * sqrt(1 - p2) / (1 - p1)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        w -= alpha * m / (sqrt(v) + epsilon)
        p1, p2 = p1 * beta1, p2 * beta2

    Each variable has its own powers, which are updated whenever the optimizer is applied to it. If the
    gradient is tf.IndexedSlices, as for every embedding variable, only the rows that it names change, and the
    powers only if it names one: of an embedding variable, on any rank. With `apply_sparse_rmsprop` those rows
    are trained by RMSProp instead, and the powers do not change::

        v = beta2 * v + (1 - beta2) * g * g
        m = beta1 * m + learning_rate / sqrt(v + epsilon) * g
        w -= m

    Its methods are those of tf.compat.v1.train.Optimizer.

    Args:
      learning_rate: a number, a scalar tensor, or a function without arguments that returns one.
      beta1: decay of the first moment, a number or a scalar tensor.
      beta2: decay of the second moment, a number or a scalar tensor.
      epsilon: a number or a scalar tensor.
      use_locking: whether updates of ordinary variables take locks.
      apply_sparse_rmsprop: whether rows of tf.IndexedSlices are trained by RMSProp.
      name: prefix of the names of ops and variables.
    """

    def __init__(
        self,
        learning_rate: float | tf.Tensor | Callable = 0.001,
        beta1: float | tf.Tensor = 0.9,
        beta2: float | tf.Tensor = 0.999,
        epsilon: float | tf.Tensor = 1e-8,
        use_locking: bool = False,
        apply_sparse_rmsprop: bool = False,
        name: str = "AdamAsync",
    ):
        super().__init__(use_locking, name)
        self._hyper = (learning_rate, beta1, beta2, epsilon)
        self._apply_sparse_rmsprop = apply_sparse_rmsprop
        # Learning rate, beta1, beta2 and epsilon of the step that is being built.
        self._tensors: tuple = ()
        # The tables in that step.
        self._tables: list[_TablePowers] = []

    def _create_slots(self, var_list: list) -> None:
        for variable in var_list:
            dtype = variable.dtype.base_dtype
            for name in ("m", "v"):
                self._zeros_slot(variable, name, self._name)
            for name, beta in zip(("beta1_power", "beta2_power"), self._hyper[1:3]):
                power = tf.convert_to_tensor(self._call_if_callable(beta), dtype)
                fit_slice_of_slot(self._get_or_make_slot(variable, power, name, self._name))

    def _prepare(self) -> None:
        names = ("learning_rate", "beta1", "beta2", "epsilon")
        self._tensors = tuple(
            tf.convert_to_tensor(self._call_if_callable(value), name=name)
            for value, name in zip(self._hyper, names)
        )
        self._tables = []

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        m, v, *powers = self._slots_of(var)
        rate, beta1, beta2, epsilon = self._cast(grad.dtype)
        grown_m = m * beta1 + grad * (1 - beta1)
        grown_v = v * beta2 + (1 - beta2) * grad * grad
        step = grown_m * _alpha(rate, *powers) / (tf.sqrt(grown_v) + epsilon)
        updates = (
            m.assign(grown_m, use_locking=self._use_locking),
            v.assign(grown_v, use_locking=self._use_locking),
            var.assign_sub(step, use_locking=self._use_locking),
        )
        return self._then_move([update.op for update in updates], powers)

    def _resource_apply_sparse(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        m, v, *powers = self._slots_of(handle)
        rate, beta1, beta2, epsilon = self._cast(grad.dtype)
        decayed_v = tf.gather(v, indices) * beta2
        grown_m = tf.gather(m, indices) * beta1
        if self._apply_sparse_rmsprop:
            grown_v = decayed_v + tf.square(grad) * (1 - beta2)
            grown_m = step = grown_m + rate / tf.sqrt(grown_v + epsilon) * grad
        else:
            grown_v = decayed_v + (1 - beta2) * grad * grad
            grown_m += grad * (1 - beta1)
            step = grown_m * _alpha(rate, *powers) / (tf.sqrt(grown_v) + epsilon)
        updates = [
            change(tf.IndexedSlices(values, indices), use_locking=self._use_locking).op
            for change, values in (
                (m.scatter_update, grown_m),
                (v.scatter_update, grown_v),
                (handle.scatter_sub, step),
            )
        ]
        if self._apply_sparse_rmsprop:
            return tf.group(*updates)
        return self._then_move(updates, powers, tf.size(indices) > 0)

    def _finish(self, update_ops: list, name_scope: str) -> tf.Operation:
        moves = []
        if self._tables:
            # One allreduce for all tables, which every rank runs in every step.
            rows = tf.stack([tf.cast(table.has_rows, tf.int32) for table in self._tables])
            rows = communicator().allreduce(rows, average=False, name=f"{name_scope}tables_with_rows")
            for number, table in enumerate(self._tables):
                moves.append(self._then_move(update_ops, table.powers, rows[number] > 0))
        return super()._finish([*update_ops, *moves], name_scope)

    def _slots_of(self, variable: tf.Variable) -> list[tf.Variable]:
        return [self.get_slot(variable, name) for name in ("m", "v", "beta1_power", "beta2_power")]

    def _cast(self, dtype: tf.DType) -> tuple:
        return tuple(tf.cast(tensor, dtype) for tensor in self._tensors)

    def _then_move(
        self, updates: list, powers: Sequence[tf.Variable], condition: tf.Tensor | None = None
    ) -> tf.Operation:
        """Groups the updates and, after them because they read the powers, the update of the powers.

        Powers stay where `condition` is false.
        """
        moves = []
        with tf.control_dependencies(updates):
            for power, beta in zip(powers, self._tensors[1:3]):
                factor = tf.cast(beta, power.dtype.base_dtype)
                if condition is not None:
                    factor = tf.compat.v2.where(condition, factor, tf.ones_like(factor))
                moves.append(power.assign(power * factor, use_locking=self._use_locking).op)
        return tf.group(*updates, *moves)

    def _powers_of_table(self, table: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
        return tuple(
            scalar_state(self, f"{table.m_var_name}/{name}", self._call_if_callable(beta), tf.float32)
            for name, beta in zip(("beta1_power", "beta2_power"), self._hyper[1:3])
        )


def table_update(
    optimizer: AdamAsyncOptimizer, table: tf.Variable, gradient: tf.IndexedSlices
) -> TableUpdate:
    """Returns the update of a table for one step of the optimizer."""
    rate, beta1, beta2, epsilon = optimizer._cast(tf.float32)
    if optimizer._apply_sparse_rmsprop:
        return TableUpdate(
            "rmsprop",
            {
                "learning_rate": rate,
                "rho": beta2,
                "momentum": beta1,
                "epsilon": epsilon,
                "initial_ms": 0.0,
            },
        )
    powers = optimizer._powers_of_table(table)
    optimizer._tables.append(_TablePowers(powers, has_rows(gradient)))
    return TableUpdate(
        "lazy_adam",
        {"alpha": _alpha(rate, *powers), "beta1": beta1, "beta2": beta2, "epsilon": epsilon},
    )


def _alpha(rate: tf.Tensor, beta1_power: tf.Variable, beta2_power: tf.Variable) -> tf.Tensor:
    one = tf.ones([], rate.dtype)
    return rate * tf.sqrt(one - beta2_power) / (one - beta1_power)


ENTRY = of_v1(
    "sok.optimizers.AdamAsyncOptimizer",
    AdamAsyncOptimizer,
    table_update,
    {"lazy_adam": {}, "rmsprop": {"apply_sparse_rmsprop": True, "beta2": 0.9, "epsilon": 1e-3}},
    slots={"v": "rms", "m": "momentum"},
    differs_by_table=True,
    for_tables_only=True,
)
