"""Code for the differences between the supported versions of TensorFlow and Keras."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import tensorflow as tf

# In TensorFlow 2.21 the first import by this name replaces the module `tf.compat.v1`. It has to happen before
# the library adds names to that module, or they would be lost.
import tensorflow.compat.v1  # noqa: F401

from sparse_operation_kit.compat.internals import global_policy, policy_or_dtype
from sparse_operation_kit.compat.version import VERSION
from sparse_operation_kit.newer_python import removeprefix

IS_TENSORFLOW_2 = VERSION >= (2, 0)

# The option with which `tf.Variable` makes a resource variable; in TensorFlow 2 it always does.
AS_RESOURCE = {} if IS_TENSORFLOW_2 else {"use_resource": True}
# The option of CheckpointSaverHook that keeps the graph out of a directory; 1.15 always writes it.
WITHOUT_GRAPH_DEF = {"save_graph_def": False} if IS_TENSORFLOW_2 else {}
# TensorFlow's own Keras 2 has no `__version__`; Keras 3 and tf_keras have one.
HAS_KERAS_2 = getattr(tf.keras, "__version__", "2").split(".")[0] == "2"


class _ModuleLayer(tf.Module):
    """The part of a Keras layer that the library's layers use, for TensorFlow with Keras 3.

    Keras 3 does not support graphs with sessions, so its Layer cannot be the base class there.
    """

    def __init__(
        self, trainable: bool = True, name: str | None = None, dtype: tf.DType | None = None
    ) -> None:
        super().__init__(name=name)
        self.trainable = trainable
        # A Keras policy name is accepted too: "mixed_float16" computes in float16.
        name_of_dtype = tf.as_dtype(dtype).name if isinstance(dtype, tf.DType) else dtype or "float32"
        self.compute_dtype = removeprefix(name_of_dtype, "mixed_")
        self.built = False

    def __call__(self, inputs, *args, **kwargs):
        with self.name_scope:
            return self.call(inputs, *args, **kwargs)

    @property
    def trainable_weights(self):
        return list(self.trainable_variables)

    @property
    def weights(self):
        return list(self.variables)


if HAS_KERAS_2:

    class _KerasLayer(tf.keras.layers.Layer):
        """A Keras layer whose dtype does not depend on its input.

        If TensorFlow's v2 behavior is disabled, Keras uses the dtype of a layer's first input as the layer's
        dtype. Here that would be the dtype of the keys.
        """

        def __init__(self, dtype: Any = None, **kwargs: Any) -> None:
            super().__init__(dtype=_global_policy() if dtype is None else policy_or_dtype(dtype), **kwargs)

    if not hasattr(_KerasLayer, "compute_dtype"):
        _KerasLayer.compute_dtype = property(lambda layer: layer._compute_dtype)

    def _global_policy() -> Any:
        policy = global_policy()
        return policy if policy.compute_dtype is not None else tf.keras.backend.floatx()


# The base class of the library's layers.
Layer: Any = _KerasLayer if HAS_KERAS_2 else _ModuleLayer


def keras_2() -> ModuleType | None:
    """Returns Keras 2: part of TensorFlow up to 2.15, later the package tf_keras, or None without that."""
    if HAS_KERAS_2:
        return tf.keras
    return importlib.import_module("tf_keras") if importlib.util.find_spec("tf_keras") else None


def legacy_keras_optimizers() -> list[tuple[str, ModuleType]]:
    """Returns the modules with Keras 2's legacy optimizers, as pairs of the public name and the module."""
    if VERSION < (2, 11):
        return [("tf.keras.optimizers", tf.keras.optimizers)]
    keras, name = keras_2(), "tf.keras" if HAS_KERAS_2 else "tf_keras"
    return [] if keras is None else [(f"{name}.optimizers.legacy", keras.optimizers.legacy)]


def beta_of_ftrl(optimizer: tf.compat.v1.train.FtrlOptimizer) -> Any:
    """Returns `beta` of TensorFlow's FTRL: 0 in 1.15, which does not have it."""
    return getattr(optimizer, "_beta", 0.0)


def clipped_before_applying(optimizer: Any, pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Returns pairs of a gradient or None and its variable, clipped as a legacy Keras optimizer says.

    The optimizers of 1.15 clip in `minimize`; those of newer versions do it themselves in `apply_gradients`.
    """
    if IS_TENSORFLOW_2:
        return pairs

    def clipped(gradient: Any) -> Any:
        if hasattr(optimizer, "clipnorm"):
            gradient = tf.clip_by_norm(gradient, optimizer.clipnorm)
        if hasattr(optimizer, "clipvalue"):
            gradient = tf.clip_by_value(gradient, -optimizer.clipvalue, optimizer.clipvalue)
        return gradient

    return [(gradient if gradient is None else clipped(gradient), variable) for gradient, variable in pairs]


def other_keras_optimizers() -> list[type]:
    """Returns the base classes of Keras' newer optimizers, which cannot train embedding variables."""
    if VERSION < (2, 11):
        return []
    modules = [tf.keras] if HAS_KERAS_2 else [tf.keras, *filter(None, [keras_2()])]
    return [module.optimizers.Optimizer for module in modules]


def dense_features_layers() -> list[type]:
    """Returns the classes that define `call` of Keras' `DenseFeatures`; Keras 3 has no such layer."""
    keras = keras_2()
    if keras is None:
        return []
    return [next(cls for cls in keras.layers.DenseFeatures.__mro__ if "call" in vars(cls))]


def require_estimator() -> None:
    """Raises RuntimeError if this TensorFlow has no Estimator."""
    if not hasattr(tf.compat.v1, "estimator"):
        raise RuntimeError(f"TensorFlow {tf.__version__} has no Estimator; its last version with one is 2.15")
