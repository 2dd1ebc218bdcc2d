"""Adam that updates only the rows of the batch."""

from __future__ import annotations

import tensorflow as tf

from sparse_operation_kit.optimizers import v1_rules
from sparse_operation_kit.optimizers.known_optimizer import of_v1


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
    """

    def __init__(
        self,
        learning_rate=0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "LazyAdam",
    ):
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
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
        first, second = self.get_slot(var, "m"), self.get_slot(var, "v")
        m = beta1 * tf.gather(first, indices) + (1 - beta1) * grad
        v = beta2 * tf.gather(second, indices) + (1 - beta2) * grad * grad
        step = alpha * m / (tf.sqrt(v) + epsilon)
        return tf.group(
            first.scatter_update(tf.IndexedSlices(m, indices), use_locking=self._use_locking).op,
            second.scatter_update(tf.IndexedSlices(v, indices), use_locking=self._use_locking).op,
            var.scatter_sub(tf.IndexedSlices(step, indices), use_locking=self._use_locking).op,
        )


ENTRY = of_v1(
    "sok.tf.keras.optimizers.LazyAdamOptimizer",
    LazyAdamOptimizer,
    v1_rules.lazy_adam,
    {"lazy_adam": {}},
    create_shared_state=v1_rules.create_beta_powers,
)
