"""Checks of the arguments and ids of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native


def as_ids(values: tf.Tensor, who: str) -> tf.Tensor:
    """Returns numbers as int32 or int64. Floats, Keras' default for inputs, are truncated.

    Raises:
      TypeError: the values are not numbers; the message begins with `who`.
    """
    if not (values.dtype.is_integer or values.dtype.is_floating):
        raise TypeError(f"{who}: ids must be integers, not {values.dtype.name}")
    return values if values.dtype in (tf.int32, tf.int64) else tf.cast(values, tf.int64)


def checked_ids(ids: tf.Tensor, rows: int, who: str) -> tf.Tensor:
    """Returns int32 or int64 `ids` of any shape, and checks that all are in [0, rows).

    If they are not, running the result raises InvalidArgumentError with `who` and the lowest id if that is
    negative, else the highest. On a GPU TensorFlow itself would read zeros for such ids.
    """
    # Zero stands in for the ids of an empty batch.
    lowest = tf.cast(tf.minimum(tf.reduce_min(ids), 0), tf.int64)
    highest = tf.cast(tf.maximum(tf.reduce_max(ids), 0), tf.int64)
    worst = tf.where(lowest < 0, lowest, highest)
    in_table = tf.logical_and(lowest >= 0, highest <= rows - 1)
    return unless(in_table, [who, ": id ", tf.strings.as_string(worst), f" is not in [0, {rows})"], ids)


def unless(holds: tf.Tensor, message: Sequence[Any], result: tf.Tensor) -> tf.Tensor:
    """Returns `result`; running it raises InvalidArgumentError if the scalar `holds` is false.

    Args:
      holds: a scalar bool tensor.
      message: the parts of the error's message, strings and scalar string tensors.
      result: any tensor.
    """
    # Not tf.debugging.Assert, which prints quotes and what is beyond ASCII as escapes.
    with tf.device("/device:CPU:0"):
        passed = native.ops.sok_raise_failures(
            codes=[tf.where(holds, 0, tf.errors.INVALID_ARGUMENT)],
            messages=[tf.strings.join(message)],
            failures=tf.zeros([0], tf.int32),
            what="",
        )
    # In eager execution the check has been made.
    with tf.control_dependencies([] if tf.executing_eagerly() else [passed]):
        return tf.identity(result)
