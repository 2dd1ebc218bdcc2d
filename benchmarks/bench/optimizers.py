"""The optimizers that train both sides. Each takes TensorFlow's variables and SOK's alike."""

from __future__ import annotations

import tensorflow as tf

import sparse_operation_kit as sok
from sparse_operation_kit.tf.keras.optimizers.lazy_adam import LazyAdamOptimizer

LEARNING_RATE = 0.001


def make_optimizer(name: str) -> tf.compat.v1.train.Optimizer:
    """A new optimizer.

    On a `tf.Variable` all of them run TensorFlow's own ops: `lazy_adam` sums the gradients of equal ids
    (unique, unsorted_segment_sum), then gathers, computes and scatters the touched rows; `adam` moves every
    row; `adagrad` and `sgd` have kernels for the touched rows; `rowwise_adagrad` sums, gathers and scatters
    as `lazy_adam` does.
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
