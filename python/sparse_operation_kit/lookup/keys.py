"""Ids that users bring, as the keys of an embedding variable."""

from typing import Any

import tensorflow as tf

from sparse_operation_kit.core.embedding_variable import EmbeddingVariable


def as_keys(ids: Any, variable: EmbeddingVariable, who: str) -> tf.Tensor:
    """Returns ids as a tensor of the variable's key_dtype.

    Args:
      ids: A tensor or what becomes one. Integers of a dtype whose values key_dtype has all are widened:
        int32 for an int64 variable, for one.
      variable: Whose keys they are.
      who: How the error's message begins.

    Raises:
      TypeError: They are no integers, or their dtype has values that key_dtype has not.
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
