"""DeepRec's `variable_scope(...).keep_weights()`: float32 variables for layers that compute in bfloat16."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def keep_weights(self: tf.compat.v1.variable_scope, dtype: Any = tf.float32) -> tf.compat.v1.variable_scope:
    """Creates variables that the scope's layers request in a smaller dtype in `dtype`, and casts reads.

    A method of `tf.variable_scope`, to be called before the scope is entered. It does not affect variables
    that are requested in `dtype` or a larger one, nor embedding variables.

    Args:
      dtype: the floating-point dtype of the variables.

    Returns:
      The scope.

    Raises:
      ValueError: `dtype` is not a floating-point dtype.
    """
    kept = tf.dtypes.as_dtype(dtype)
    if not kept.is_floating:
        raise ValueError(f"keep_weights: dtype must be a floating-point dtype, but is {kept.name}")
    self._custom_getter = functools.partial(_get_kept, kept, self._custom_getter)
    return self


def _get_kept(
    kept: tf.DType,
    others: Callable | None,
    getter: Callable,
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """A custom getter around `others`, the scope's own getter."""
    if others is not None:
        getter = functools.partial(others, getter)
    wanted = tf.dtypes.as_dtype(dtype or tf.float32).base_dtype
    if not wanted.is_floating or wanted.size >= kept.size:
        return getter(name, shape, dtype, initializer, *args, **kwargs)
    if isinstance(initializer, tf.Tensor):
        initializer = tf.cast(initializer, kept)
    elif isinstance(initializer, np.ndarray):
        initializer = initializer.astype(kept.as_numpy_dtype)
    variable = getter(name, shape, kept, initializer, *args, **kwargs)
    return tf.cast(variable, wanted)
