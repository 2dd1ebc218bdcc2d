"""DeepRec's Adagrad with accumulators that decay from one period of training to the next."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from sparse_operation_kit.optimizers.known_optimizer import of_v1
from sparse_operation_kit.optimizers.row_slots import UpdatesAlike, make_row_slot
from sparse_operation_kit.optimizers.table_update import TableUpdate

# Tables count periods in float32, which is exact up to this number.
_MAX_PERIODS = 2**24
_SLOTS = ("accumulator", "accumulator_decay_power")


class AdagradDecayOptimizer(UpdatesAlike):
    """DeepRec's `tf.train.AdagradDecayOptimizer`, for embedding and ordinary variables.

    Steps are counted from 1. Step t is in period floor(t / accumulator_decay_step). For a row w with gradient
    g, accumulator a and count of decays d::

        if period > d:
            a = max(accumulator_decay_rate * a, initial_accumulator_value)
            d += 1
        a += g * g
        w -= learning_rate * g / sqrt(a)

    The rows of an ordinary variable are its slices along the first dimension. A row that was not updated for
    several periods decays once in each of its next steps, until d reaches the period. Periods are limited to
    2^24.

    Its methods are those of tf.compat.v1.train.Optimizer.

    Args:
      learning_rate: a number, a scalar tensor, or a function without arguments that returns one.
      global_step: the integer variable that `apply_gradients` increments; before step t its value is t - 1.
      initial_accumulator_value: the initial value and lower bound of accumulators, above 0.
      accumulator_decay_step: the length of a period in steps, above 0.
      accumulator_decay_rate: in (0, 1).
      use_locking: whether updates of ordinary variables take locks.
      name: prefix of the names of ops and variables.

    Raises:
      ValueError: an argument is out of range, or `global_step` is None.
    """

    def __init__(
        self,
        learning_rate: float | tf.Tensor | Callable,
        global_step: tf.Variable,
        initial_accumulator_value: float = 0.1,
        accumulator_decay_step: int = 100000,
        accumulator_decay_rate: float = 0.9,
        use_locking: bool = False,
        name: str = "AdagradDecay",
    ):
        if global_step is None:
            raise ValueError(
                "AdagradDecayOptimizer needs the global step: pass tf.compat.v1.train."
                "get_or_create_global_step()"
            )
        for argument, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("accumulator_decay_step", accumulator_decay_step),
        ):
            if not value > 0:
                raise ValueError(f"AdagradDecayOptimizer: {argument} must be above 0, not {value}")
        if not 0.0 < accumulator_decay_rate < 1.0:
            raise ValueError(
                "AdagradDecayOptimizer: accumulator_decay_rate must be in (0, 1), not "
                f"{accumulator_decay_rate}"
            )
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._global_step = global_step
        self._initial_accumulator_value = initial_accumulator_value
        self._decay_step = accumulator_decay_step
        self._decay_rate = accumulator_decay_rate
        self._learning_rate_tensor = None
        self._period = None

    def _create_slots(self, var_list: list) -> None:
        accumulator = tf.compat.v1.constant_initializer(self._initial_accumulator_value)
        for variable in var_list:
            self._get_or_make_slot_with_initializer(
                variable, accumulator, variable.shape, variable.dtype.base_dtype, _SLOTS[0], self._name
            )
            make_row_slot(self, variable, _SLOTS[1], 0, tf.int64)

    def _prepare(self) -> None:
        self._learning_rate_tensor = tf.convert_to_tensor(
            self._call_if_callable(self._learning_rate), name="learning_rate"
        )
        step = tf.cast(tf.identity(self._global_step), tf.int64) + 1
        self._period = tf.minimum(step // tf.constant(self._decay_step, tf.int64), _MAX_PERIODS)

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        accumulator, decays = (self.get_slot(var, name) for name in _SLOTS)
        grown, due = self._grown(grad, accumulator, decays)
        count = decays.assign_add(tf.cast(due, tf.int64), use_locking=self._use_locking)
        keep = accumulator.assign(grown, use_locking=self._use_locking)
        move = var.assign_sub(self._step(grad, grown), use_locking=self._use_locking)
        return tf.group(count.op, keep.op, move.op)

    def _resource_apply_sparse(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        accumulator, decays = (self.get_slot(handle, name) for name in _SLOTS)
        counts = tf.gather(decays, indices)
        grown, due = self._grown(grad, tf.gather(accumulator, indices), counts)
        updates = (
            decays.scatter_update(
                tf.IndexedSlices(counts + tf.cast(due, tf.int64), indices), self._use_locking
            ),
            accumulator.scatter_update(tf.IndexedSlices(grown, indices), self._use_locking),
            handle.scatter_sub(tf.IndexedSlices(self._step(grad, grown), indices), self._use_locking),
        )
        return tf.group(*[update.op for update in updates])

    def _grown(self, grad: tf.Tensor, accumulator: tf.Tensor, decays: tf.Tensor) -> tuple:
        """Returns the accumulators after the step, and for each row whether it decays in this step."""
        due = tf.greater(self._period, decays)
        rate = tf.cast(self._decay_rate, grad.dtype)
        least = tf.cast(self._initial_accumulator_value, grad.dtype)
        decayed = tf.maximum(accumulator * rate, least)
        of_elements = tf.reshape(due, tf.concat([tf.shape(due), [1] * (grad.shape.rank - due.shape.rank)], 0))
        # `tf.where` of 1.15 does not broadcast.
        return tf.compat.v2.where(of_elements, decayed, accumulator) + tf.square(grad), due

    def _step(self, grad: tf.Tensor, accumulator: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._learning_rate_tensor, grad.dtype) * grad / tf.sqrt(accumulator)


def table_update(optimizer: AdagradDecayOptimizer) -> TableUpdate:
    """Returns the update of a table for one step of the optimizer."""
    return TableUpdate(
        "adagrad_decay",
        {
            "learning_rate": optimizer._learning_rate_tensor,
            "initial_accumulator": optimizer._initial_accumulator_value,
            "decay_rate": optimizer._decay_rate,
            "period": optimizer._period,
        },
    )


ENTRY = of_v1(
    "sok.optimizers.AdagradDecayOptimizer",
    AdagradDecayOptimizer,
    table_update,
    {
        "adagrad_decay": {
            "global_step": tf.compat.v1.train.get_or_create_global_step,
            "accumulator_decay_step": 5,
        }
    },
    slots={"accumulator_decay_power": "decay_power"},
)
