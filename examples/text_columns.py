"""Splits lines of text into columns with TensorFlow's ops."""

from __future__ import annotations

import tensorflow as tf


def split_columns(text: tf.Tensor, separator: str, count: int) -> tf.Tensor:
    """The columns of string [n]: string [n, count]. Missing columns at the end of a line are empty.

    A line with more columns raises an error that shows the line: the separator is wrong or the file is
    damaged, and dropping columns would hide that.
    """
    # By version 1's function, because TensorFlow 1.15 has RaggedTensors without `to_tensor(shape=...)`.
    columns = tf.compat.v1.strings.split(text, separator)
    too_long = tf.gather(text, tf.boolean_mask(columns.indices[:, 0], columns.indices[:, 1] >= count))
    message = f"A line has more than {count} columns"
    check = tf.compat.v1.assert_equal(tf.size(too_long), 0, data=[message, too_long], summarize=1)
    shape = tf.stack([tf.size(text, out_type=tf.int64), count])
    with tf.control_dependencies([check]):
        values = tf.identity(columns.values)
    return tf.ensure_shape(
        tf.sparse.to_dense(tf.SparseTensor(columns.indices, values, shape), ""), [None, count]
    )
