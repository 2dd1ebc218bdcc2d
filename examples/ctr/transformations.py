"""Transformations of datasets that TensorFlow 1.15 has under other names, or not at all.

Their functions must not branch on a tensor in Python: AutoGraph does not convert them, which would take
longer than building a small graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def rebatch(dataset: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
    """Batches of `batch_size` samples from batches of any size; the last may be smaller."""
    if hasattr(dataset, "rebatch"):
        return dataset.rebatch(batch_size)
    return dataset.apply(tf.data.experimental.unbatch()).batch(batch_size)


def take_while(dataset: tf.data.Dataset, predicate: Callable[..., tf.Tensor]) -> tf.data.Dataset:
    """The elements before the first for which `predicate` is false."""
    predicate = tf.autograph.experimental.do_not_convert(predicate)
    if hasattr(dataset, "take_while"):
        return dataset.take_while(predicate)
    return dataset.apply(tf.data.experimental.take_while(predicate))


def scan(dataset: tf.data.Dataset, state: Any, function: Callable[..., tuple]) -> tf.data.Dataset:
    """The second results of `function(state, element)`, whose first is the state for the next element."""
    function = tf.autograph.experimental.do_not_convert(function)
    if hasattr(dataset, "scan"):
        return dataset.scan(state, function)
    return dataset.apply(tf.data.experimental.scan(state, function))
