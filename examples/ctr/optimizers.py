"""TensorFlow's stock optimizers, by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_STOCK: dict[str, Callable[[float], Any]] = {
    "adam": lambda rate: tf.compat.v1.train.AdamOptimizer(rate),
    "sgd": lambda rate: tf.compat.v1.train.GradientDescentOptimizer(rate),
    "momentum": lambda rate: tf.compat.v1.train.MomentumOptimizer(rate, momentum=0.9),
    "adagrad": lambda rate: tf.compat.v1.train.AdagradOptimizer(rate),
    "rmsprop": lambda rate: tf.compat.v1.train.RMSPropOptimizer(rate),
    "ftrl": lambda rate: tf.compat.v1.train.FtrlOptimizer(rate),
}

NAMES = ("lazy_adam",) + tuple(_STOCK)


def make_stock_optimizer(name: str, learning_rate: float) -> Any:
    """TensorFlow's optimizer of that name. For lazy_adam it is Adam, which is equal on dense weights."""
    return _STOCK["adam" if name == "lazy_adam" else name](learning_rate)
