"""The optimizers that train both sides. Each accepts TensorFlow's variables and SOK's."""

from __future__ import annotations

import tensorflow as tf

import sparse_operation_kit as sok
from sparse_operation_kit.tf.keras.optimizers.lazy_adam import LazyAdamOptimizer

LEARNING_RATE = 0.001


def make_optimizer(name: str) -> tf.compat.v1.train.Optimizer:
    """Makes an optimizer.

    On a `tf.Variable`, all of them run TensorFlow's own ops. `lazy_adam` and `rowwise_adagrad` sum the
    gradients of equal ids (unique, unsorted_segment_sum), then gather, compute and scatter the touched rows.
    `adam` moves every row. `adagrad` and `sgd` have kernels that update the touched rows.
    """
    train = tf.compat.v1.train
    makers = {
        "lazy_adam": LazyAdamOptimizer,
        "adam": train.AdamOptimizer,
        "adagrad": train.AdagradOptimizer,
        "sgd": train.GradientDescentOptimizer,
        "rowwise_adagrad": sok.optimizers.RowWiseAdagrad,
    }
    return makers[name](LEARNING_RATE)
