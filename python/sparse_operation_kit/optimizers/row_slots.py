"""Slots of ordinary variables with one number per row, as the engine's rules have them in tables.

The rows of a variable are its slices along the first dimension; a scalar is one row.
"""

from __future__ import annotations

import tensorflow as tf

from sparse_operation_kit.compat.tensors import fit_slice_of_slot


def make_row_slot(
    optimizer: tf.compat.v1.train.Optimizer, variable: tf.Variable, name: str, value: float = 0.0
) -> None:
    """Makes the slot `name` of the optimizer, of the variable's type, with `value` for each row."""
    slot = optimizer._get_or_make_slot_with_initializer(
        variable,
        tf.compat.v1.constant_initializer(value),
        variable.shape[:1],
        variable.dtype.base_dtype,
        name,
        optimizer._name,
    )
    fit_slice_of_slot(slot)


def mean_square(grad: tf.Tensor) -> tf.Tensor:
    """The mean of the squares of each row's gradient: [rows], or a scalar of a scalar."""
    return tf.reduce_mean(tf.square(grad), axis=list(range(1, grad.shape.rank)))


def one_per_row(grad: tf.Tensor) -> tf.Tensor:
    """The shape [rows, 1, 1, ...], in which numbers of rows broadcast over them; [] of a scalar."""
    ones = [1] * max(grad.shape.rank - 1, 0)
    return tf.concat([tf.shape(grad)[:1], tf.constant(ones, tf.int32)], axis=0)
