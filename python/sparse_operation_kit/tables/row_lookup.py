"""The function with which an embedding variable looks up its own rows.

Lookups are a layer above variables. Therefore `lookup.group`, which creates the ops, registers its function
here when it is imported. The package always imports it.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.newer_python import set_within

# Takes the lookups of a group and the function that makes them, and returns the rows; None: they are made.
around: contextvars.ContextVar[Any] = contextvars.ContextVar("sok_around_lookups", default=None)

_registered: Callable[[tf.Variable, tf.Tensor, str | None], tf.Tensor] | None = None


def register(function: Callable[[tf.Variable, tf.Tensor, str | None], tf.Tensor]) -> Callable:
    """Registers the function that `look_up` calls, and returns it."""
    global _registered
    _registered = function
    return function


def look_up(variable: tf.Variable, keys: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Looks up rows of an embedding variable; a key without a row gets one.

    Args:
      variable: the embedding variable.
      keys: a tensor of its key_dtype, of any shape.
      name: the name of the op.

    Returns:
      A float32 tensor with the shape of the keys and one more dimension, the variable's dim.
    """
    assert _registered is not None, "the package imports lookup.group"
    return _registered(variable, keys, name)


def made_by(function: Callable | None) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which `around` is `function`."""
    return set_within(around, function)
