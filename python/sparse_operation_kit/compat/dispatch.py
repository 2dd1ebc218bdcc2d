"""Implementations of TensorFlow's functions for arguments of some types."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import clip_ops

from sparse_operation_kit.compat.namespaces import attribute

# Where version 1.15 has the functions that are dispatched.
_NAMESPACES = (
    clip_ops,
    tf,
    tf.linalg,
    tf.compat.v1,
    tf.compat.v1.linalg,
    tf.compat.v2,
    tf.compat.v2.linalg,
)


def dispatch(function: Callable, types: Mapping[str, Any], implementation: Callable) -> Callable[[], None]:
    """Lets TensorFlow's `function` call `implementation` for arguments of some types.

    Args:
      function: a function of `tf`.
      types: maps names of arguments to types, as for `tf.experimental.dispatch_for_api`.
      implementation: takes the arguments of `function`.

    Returns:
      A function that undoes it.
    """
    if hasattr(tf.experimental, "dispatch_for_api"):
        tf.experimental.dispatch_for_api(function, dict(types))(implementation)
        return lambda: tf.experimental.unregister_dispatch_for(implementation)
    return _put_before(function, list(types), implementation)


def _put_before(function: Callable, names: list[str], implementation: Callable) -> Callable[[], None]:
    """Replaces a function of version 1.15, which has no dispatch on types, by one that chooses.

    It calls `implementation` if an argument in `names` is a tf.IndexedSlices, or a list that contains one.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def choose(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        if any(_has_slices(arguments.get(name)) for name in names):
            return implementation(*args, **kwargs)
        return function(*args, **kwargs)

    name = function.__name__
    places = [space for space in _NAMESPACES if attribute(space, name, None) is function]
    for place in places:
        setattr(place, name, choose)

    def undo() -> None:
        for place in places:
            if attribute(place, name, None) is choose:
                setattr(place, name, function)

    return undo


def _has_slices(value: Any) -> bool:
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(one, tf.IndexedSlices) for one in values)
