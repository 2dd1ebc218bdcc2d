"""How an embedding variable looks its own rows up.

Lookups are a layer above variables. So the module that makes their ops, `lookup.group`, registers its
function here when it is imported; the package imports it.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

_registered: Callable[[tf.Variable, tf.Tensor, str | None], tf.Tensor] | None = None


def register(function: Callable[[tf.Variable, tf.Tensor, str | None], tf.Tensor]) -> Callable:
    """Makes `function` what `look_up` calls; returns it."""
    global _registered
    _registered = function
    return function


def look_up(variable: tf.Variable, keys: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Looks up rows of an embedding variable; in training, a key that is not there gets one.

    Args:
      variable: the embedding variable.
      keys: of its key_dtype, of any shape.
      name: of the op.

    Returns:
      A float32 tensor of the shape of the keys and one more dimension, the variable's dim.
    """
    assert _registered is not None, "the package imports lookup.group"
    return _registered(variable, keys, name)
