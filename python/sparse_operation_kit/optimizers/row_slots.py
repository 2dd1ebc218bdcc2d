"""Updates of ordinary variables by rows, and slots with one number per row, as the engine's rules have them.

The rows of a variable are its slices along the first dimension; a scalar is one row.
"""

from __future__ import annotations

import tensorflow as tf

from sparse_operation_kit.compat.tensors import fit_slice_of_slot


class UpdatesAlike(tf.compat.v1.train.Optimizer):
    """An optimizer that updates both kinds of variables alike.

    Subclasses define `_apply_dense` and `_resource_apply_sparse`.
    """

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> tf.Operation:
        return self._apply_dense(grad, handle)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._resource_apply_sparse(grad.values, var, grad.indices)


def make_row_slot(
    optimizer: tf.compat.v1.train.Optimizer,
    variable: tf.Variable,
    name: str,
    value: float = 0.0,
    dtype: tf.DType | None = None,
) -> None:
    """Makes the slot `name` of the optimizer, `value` for each row; by default of the variable's type."""
    slot = optimizer._get_or_make_slot_with_initializer(
        variable,
        tf.compat.v1.constant_initializer(value),
        variable.shape[:1],
        dtype or variable.dtype.base_dtype,
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
