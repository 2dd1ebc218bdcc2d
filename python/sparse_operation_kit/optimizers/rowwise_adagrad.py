"""Adagrad with one accumulator per row."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from sparse_operation_kit.optimizers.known_optimizer import of_v1
from sparse_operation_kit.optimizers.row_slots import UpdatesAlike, make_row_slot, mean_square, one_per_row
from sparse_operation_kit.optimizers.table_update import TableUpdate


class RowWiseAdagrad(UpdatesAlike):
    """Adagrad whose accumulator is a single number per row, for embedding and ordinary variables.

    For a row w with gradient g: a += mean(g^2), w -= learning_rate * g / (sqrt(a) + epsilon). A table needs
    one float of state per row instead of a whole row. The rows of an ordinary variable are its slices along
    the first dimension.

    Args:
      learning_rate: a number, a scalar tensor, or a function without arguments that returns one.
      initial_accumulator_value: the initial value of accumulators, at least 0.
      epsilon: a number or a scalar tensor.
      use_locking: whether updates of ordinary variables take locks.
      name: prefix of the names of ops and variables.

    Raises:
      ValueError: if `initial_accumulator_value` is negative.
    """

    def __init__(
        self,
        learning_rate: float | tf.Tensor | Callable,
        initial_accumulator_value: float = 0.1,
        epsilon: float | tf.Tensor = 1e-7,
        use_locking: bool = False,
        name: str = "RowWiseAdagrad",
    ):
        if initial_accumulator_value < 0.0:
            raise ValueError(f"initial_accumulator_value must be at least 0, not {initial_accumulator_value}")
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value
        self._epsilon = epsilon
        self._learning_rate_tensor = None
        self._epsilon_tensor = None

    def _create_slots(self, var_list: list) -> None:
        for variable in var_list:
            make_row_slot(self, variable, "accumulator", self._initial_accumulator_value)

    def _prepare(self) -> None:
        self._learning_rate_tensor = tf.convert_to_tensor(
            self._call_if_callable(self._learning_rate), name="learning_rate"
        )
        self._epsilon_tensor = tf.convert_to_tensor(self._call_if_callable(self._epsilon), name="epsilon")

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        accumulator = self.get_slot(var, "accumulator")
        squares = accumulator.assign_add(mean_square(grad), use_locking=self._use_locking)
        return var.assign_sub(self._step(grad, squares), use_locking=self._use_locking).op

    def _resource_apply_sparse(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        accumulator = self.get_slot(handle, "accumulator")
        squares = tf.gather(accumulator, indices) + mean_square(grad)
        step = self._step(grad, squares)
        keep = accumulator.scatter_update(tf.IndexedSlices(squares, indices), use_locking=self._use_locking)
        move = handle.scatter_sub(tf.IndexedSlices(step, indices), use_locking=self._use_locking)
        return tf.group(keep.op, move.op)

    def _step(self, grad: tf.Tensor, squares: tf.Tensor) -> tf.Tensor:
        learning_rate = tf.cast(self._learning_rate_tensor, grad.dtype)
        root = tf.sqrt(squares) + tf.cast(self._epsilon_tensor, grad.dtype)
        return learning_rate * grad / tf.reshape(root, one_per_row(grad))


def table_update(optimizer: RowWiseAdagrad) -> TableUpdate:
    """Returns the update of a table for one step of the optimizer."""
    return TableUpdate(
        "rowwise_adagrad",
        {
            "learning_rate": optimizer._learning_rate_tensor,
            "initial_accumulator": optimizer._initial_accumulator_value,
            "epsilon": optimizer._epsilon_tensor,
        },
    )


ENTRY = of_v1("sok.optimizers.RowWiseAdagrad", RowWiseAdagrad, table_update, {"rowwise_adagrad": {}})
