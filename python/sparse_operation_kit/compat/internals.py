"""TensorFlow's private modules that the library uses. Modules outside this folder import them from here.

If versions have different names for a module, it has the newest name here. Functions such as
`set_handle_data` hide other differences between versions.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, variable_pb2  # noqa: F401
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2  # noqa: F401
from tensorflow.python.client import session  # noqa: F401
from tensorflow.python.eager import context  # noqa: F401
from tensorflow.python.feature_column import feature_column as columns_v1  # noqa: F401
from tensorflow.python.feature_column import feature_column_v2 as columns_v2  # noqa: F401
from tensorflow.python.feature_column import serialization  # noqa: F401
from tensorflow.python.framework import func_graph, kernels, op_def_registry, ops  # noqa: F401
from tensorflow.python.framework.function import Defun  # noqa: F401
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph  # noqa: F401
from tensorflow.python.ops import control_flow_v2_func_graphs as branches  # noqa: F401
from tensorflow.python.ops import (  # noqa: F401
    init_ops,
    resource_variable_ops,
    variable_scope,
    variables,
)
from tensorflow.python.training import saver  # noqa: F401
from tensorflow.python.training.saving import saveable_object  # noqa: F401
from tensorflow.python.util import deprecation  # noqa: F401

from sparse_operation_kit.compat.version import VERSION

try:
    from tensorflow.python.trackable import base as trackable
except ImportError:
    from tensorflow.python.training.tracking import base as trackable  # noqa: F401

try:
    from tensorflow.python.eager import record
except ImportError:
    from tensorflow.python.eager import tape as record  # noqa: F401

try:
    from tensorflow.python.eager.backprop_util import IsTrainable as is_trainable
except ImportError:
    from tensorflow.python.ops.gradients_util import IsTrainable as is_trainable  # noqa: F401

try:
    from tensorflow.python.ops.ref_variable import RefVariable
except ImportError:
    from tensorflow.python.ops.variables import RefVariable  # noqa: F401

try:
    from tensorflow.python.ops import handle_data_util
except ImportError:
    handle_data_util = None


try:
    global_policy = tf.keras.mixed_precision.global_policy
except AttributeError:
    from tensorflow.python.keras.mixed_precision.experimental import policy as _policies

    global_policy = _policies.global_policy

# For a variable of any other class, version 1.15 reads the whole variable before it looks up rows.
BaseOfLookedUpVariables = (
    resource_variable_ops.ResourceVariable if VERSION < (2, 0) else resource_variable_ops.BaseResourceVariable
)


if hasattr(serialization, "_serialize_keras_object"):
    serialize_keras_object: Any = serialization._serialize_keras_object
    deserialize_keras_object: Any = serialization._deserialize_keras_object
else:
    from tensorflow.python.keras.utils import generic_utils as _generic_utils

    serialize_keras_object = _generic_utils.serialize_keras_object
    deserialize_keras_object = _generic_utils.deserialize_keras_object

# Version 1.15 uses the names of columns unchanged.
name_for_variable_scope: Any = getattr(columns_v2, "_sanitize_column_name_for_variable_scope", str)


class _EmbeddingColumn(columns_v2.EmbeddingColumn):
    """The column of version 1.15, with the names that later versions have for its config methods."""

    def get_config(self) -> dict[str, Any]:
        """The config of the column, which can be stored as JSON."""
        return super()._get_config()

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None, columns_by_name: Any = None
    ) -> Any:
        """Creates the column from its config."""
        return super()._from_config(config, custom_objects, columns_by_name)


def _register_feature_column(column: Any) -> Any:
    column._get_config, column._from_config = column.get_config, column.from_config
    serialization._FEATURE_COLUMNS.append(column)
    return column


if hasattr(columns_v2.EmbeddingColumn, "get_config"):
    EmbeddingColumn: Any = columns_v2.EmbeddingColumn
    # A decorator for classes of columns: lets TensorFlow create such columns from their configs.
    register_feature_column: Any = serialization.register_feature_column
else:
    EmbeddingColumn, register_feature_column = _EmbeddingColumn, _register_feature_column


def op_definition(name: str) -> Any:
    """The registration of a type of ops; None if there is no such type."""
    if tf.__version__.startswith("1."):
        return op_def_registry.get_registered_ops().get(name)
    return op_def_registry.get(name)


class _VariableWatcher:
    """Notes the trainable variables that are read in its context. Version 1.15 has no such class."""

    def __init__(self) -> None:
        self._watched: dict[int, Any] = {}

    def __enter__(self) -> _VariableWatcher:
        self._before = record.variable_accessed

        def note(variable: Any) -> None:
            self._watched.setdefault(id(variable), variable)
            self._before(variable)

        record.variable_accessed = note
        return self

    def __exit__(self, *unused: Any) -> None:
        record.variable_accessed = self._before

    def watched_variables(self) -> tuple[Any, ...]:
        """The variables, in the order of their first reads."""
        return tuple(self._watched.values())


# A context that notes the trainable variables that are read in it.
watching_variables: Any = getattr(record, "VariableWatcher", _VariableWatcher)


def call_with_training(original: Any, layer: Any, *arguments: Any) -> Any:
    """Calls a layer's `call` without its last argument, `training`, if it lacks it, as in version 1.15."""
    takes_training = "training" in inspect.signature(original).parameters
    return original(layer, *(arguments if takes_training else arguments[:-1]))


def policy_or_dtype(name: Any) -> Any:
    """Returns the dtype argument for Keras' layers, given a policy, a dtype, or the name of either.

    Version 1.15's layers do not accept the name of a policy.
    """
    if VERSION < (2, 0) and str(name).startswith("mixed_"):
        return _policies.Policy(name)
    return name


def set_handle_data(handle: tf.Tensor, shape: tf.TensorShape, dtype: tf.DType) -> None:
    """Tells TensorFlow the shape and dtype of the variable that the resource `handle` refers to."""
    if handle_data_util is not None:
        return handle_data_util.set_handle_data(handle, handle_data_util.create_handle_data(shape, dtype))
    from tensorflow.python.framework import cpp_shape_inference_pb2

    data = cpp_shape_inference_pb2.CppShapeInferenceResult.HandleData(is_set=True)
    data.shape_and_type.add(shape=shape.as_proto(), dtype=dtype.as_datatype_enum)
    resource_variable_ops._set_handle_shapes_and_types(handle, data, graph_mode=not tf.executing_eagerly())


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Calls deprecated functions without notices, which would name files of this library.

    Not thread-safe, like building graphs.
    """
    before = deprecation._PRINT_DEPRECATION_WARNINGS
    # Not deprecation.silence(): after an error, it would leave the notices off.
    deprecation._PRINT_DEPRECATION_WARNINGS = False
    try:
        yield
    finally:
        deprecation._PRINT_DEPRECATION_WARNINGS = before
