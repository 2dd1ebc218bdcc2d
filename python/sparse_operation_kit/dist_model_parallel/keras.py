"""Keras 2, for the layers of this package: part of TensorFlow up to 2.15, later the package tf_keras."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.compat.internals import ops


class _Missing:
    """Stands in for Keras' Layer where there is no Keras 2, so that the package can be imported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ImportError(
            f"{type(self).__name__} is a layer of Keras 2, which TensorFlow {tf.__version__} has not. "
            "`pip install --no-deps tf_keras` installs it."
        )


# The module, or None if there is none.
keras: Any = compat.keras_2()
# The base class of layers.
Layer: Any = _Missing if keras is None else keras.layers.Layer


class FloatLayer(Layer):
    """A layer that takes ids and returns floats of its compute dtype."""

    def __init__(self, **kwargs: Any) -> None:
        # With TensorFlow's v2 behavior disabled, Keras would take the dtype of the ids.
        if kwargs.get("dtype") is None and not ops.executing_eagerly_outside_functions():
            kwargs["dtype"] = keras.backend.floatx()
        super().__init__(autocast=False, **kwargs)

    def _computed(self, output: Any) -> Any:
        """Returns the output in the layer's compute dtype."""
        return (
            output
            if self._compute_dtype in (None, output.dtype.name)
            else tf.cast(output, self._compute_dtype)
        )


def keras_session() -> tf.compat.v1.Session:
    """The session that Keras uses in the default graph, which is the default session if there is one."""
    if compat.HAS_KERAS_2:
        return tf.compat.v1.keras.backend.get_session()
    return importlib.import_module("tf_keras.src.backend").get_session()
