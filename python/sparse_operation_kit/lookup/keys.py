"""Converts the ids that users pass to the keys of an embedding variable."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


def as_keys(ids: Any, variable: EmbeddingVariable, who: str) -> tf.Tensor:
    """Returns ids as a tensor of the variable's key_dtype.

    Args:
      ids: A tensor, or a value that converts to one. Its integer dtype may be narrower than key_dtype: int32
        ids for an int64 variable are widened.
      variable: The embedding variable.
      who: The beginning of error messages.

    Raises:
      TypeError: The ids are not integers, or key_dtype cannot represent all values of their dtype.
    """
    tensor = tf.convert_to_tensor(ids, dtype_hint=variable.key_dtype)
    if tensor.dtype == variable.key_dtype:
        return tensor
    if not _holds(variable.key_dtype, tensor.dtype):
        raise TypeError(
            f"{who}: ids are {tensor.dtype.name}, which embedding variable '{variable.m_var_name}' with "
            f"key_dtype {variable.key_dtype.name} cannot hold"
        )
    return tf.cast(tensor, variable.key_dtype)


def _holds(wide: tf.DType, narrow: tf.DType) -> bool:
    return narrow.is_integer and wide.min <= narrow.min and narrow.max <= wide.max
