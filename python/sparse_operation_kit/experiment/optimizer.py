"""OptimizerWrapper and SGD."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.optimizers import wrapper
from sparse_operation_kit.optimizers.scalar_state import initializer_of


class OptimizerWrapper(wrapper.OptimizerWrapper):
    """The optimizer that it is given: TensorFlow's optimizers train tables by themselves.

    Args:
      optimizer: A `tf.compat.v1.train` or a legacy Keras optimizer. Adam is TensorFlow's, which moves every
        row; the original's moves those of the batch, as `sok.tf.keras.optimizers.LazyAdamOptimizer` does.

    Raises:
      TypeError: It is no such optimizer.
    """

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer, "OptimizerWrapper")

    @property
    def lr(self) -> Any:
        """The learning rate of a Keras optimizer."""
        return self.inner_optimizer.lr

    @property
    def initializer(self) -> tf.Operation:
        """The op that initializes the wrapped optimizer's own variables, those made so far."""
        return initializer_of(self, self.inner_optimizer)


class SGD(tf.compat.v1.train.GradientDescentOptimizer):
    """Gradient descent with a learning rate that may be changed.

    Args:
      lr: The learning rate that training starts with.
    """

    def __init__(self, lr: float) -> None:
        self._lr = tf.compat.v1.Variable(
            lr, trainable=False, use_resource=True, dtype=tf.float32, name="SGD/learning_rate"
        )
        super().__init__(self._lr, name="SGD")

    @property
    def lr(self) -> tf.Variable:
        """The learning rate, a float32 variable of the graph that the optimizer was made in."""
        return self._lr
