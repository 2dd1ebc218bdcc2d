"""OptimizerWrapper and SGD."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers import wrapper
from sparse_operation_kit.optimizers.scalar_state import initializer_of


class OptimizerWrapper(wrapper.OptimizerWrapper):
    """Passes all calls to the given optimizer: TensorFlow's optimizers can train tables without a wrapper.

    Args:
      optimizer: A `tf.compat.v1.train` or a legacy Keras optimizer. TensorFlow's Adam updates every row in
        each step. The original SOK's Adam updates only the rows of the batch, as
        `sok.tf.keras.optimizers.LazyAdamOptimizer` does.

    Raises:
      TypeError: `optimizer` is not such an optimizer.
    """

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer, "OptimizerWrapper")

    @property
    def lr(self) -> Any:
        """The learning rate of a Keras optimizer."""
        return self.inner_optimizer.lr

    @property
    def initializer(self) -> tf.Operation:
        """An op that initializes the variables that the wrapped optimizer has created so far."""
        return initializer_of(self, self.inner_optimizer)


class SGD(tf.compat.v1.train.GradientDescentOptimizer):
    """Gradient descent with a learning rate that can be changed.

    Args:
      lr: The initial learning rate.
    """

    def __init__(self, lr: float) -> None:
        self._lr = tf.compat.v1.Variable(
            lr, trainable=False, use_resource=True, dtype=tf.float32, name="SGD/learning_rate"
        )
        super().__init__(self._lr, name="SGD")

    @property
    def lr(self) -> tf.Variable:
        """The learning rate, a float32 variable of the graph in which the optimizer was created."""
        return self._lr
