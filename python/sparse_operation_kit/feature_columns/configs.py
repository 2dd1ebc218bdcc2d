"""Converts options of columns to configs (dictionaries that can be stored as JSON) and back."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.internals import (
    deserialize_keras_object,
    init_ops,
    serialize_keras_object,
)
from sparse_operation_kit.tables import row_policies
from sparse_operation_kit.tables.get_embedding_variable import EmbeddingVariableOption
from sparse_operation_kit.tables.storage_option import StorageOption

_KINDS = {
    kind.__name__: kind
    for kind in (
        EmbeddingVariableOption,
        StorageOption,
        row_policies.CBFFilter,
        row_policies.CounterFilter,
        row_policies.GlobalStepEvict,
        row_policies.InitializerOption,
        row_policies.L2WeightEvict,
    )
}


def options_config(column: str, options: Any) -> dict[str, Any] | None:
    """Returns an `ev_option` as a config.

    Args:
      column: The column's name, for error messages.
      options: The `ev_option`. If it has another class, its config is that of an `EmbeddingVariableOption`.

    Raises:
      ValueError: The initializer has no config.
    """
    if options is None:
        return None
    if not isinstance(options, EmbeddingVariableOption):
        options = EmbeddingVariableOption(
            init_option=options.init_option or row_policies.InitializerOption(),
            filter_option=options.filter_option,
            evict_option=options.evict_option,
            # Options of another class may be older than this attribute.
            storage_option=getattr(options, "storage_option", None),
        )
    return _to_config(column, options)


def options_from_config(config: Any, custom_objects: dict[str, Any] | None) -> Any:
    """Returns the options for a config of `options_config`. Lists in them become tuples.

    Args:
      config: The config.
      custom_objects: Maps names to classes of initializers that are not TensorFlow's.

    Raises:
      ValueError: The config names an unknown class.
    """
    if isinstance(config, (list, tuple)):
        return tuple(config)
    if not isinstance(config, dict):
        return config
    name = config.get("class_name")
    if name == tf.DType.__name__:
        return tf.as_dtype(config["config"])
    if name in _KINDS:
        fields = {
            field: options_from_config(value, custom_objects) for field, value in config["config"].items()
        }
        return _KINDS[name](**fields)
    return deserialize_keras_object(
        config,
        module_objects=_initializers(),
        custom_objects=custom_objects,
        printable_module_name="initializer",
    )


def _to_config(column: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_to_config(column, one) for one in value]
    if isinstance(value, tf.DType):
        return {"class_name": tf.DType.__name__, "config": value.name}
    if type(value) in _KINDS.values():
        fields = {
            field.name: _to_config(column, getattr(value, field.name)) for field in dataclasses.fields(value)
        }
        return {"class_name": type(value).__name__, "config": fields}
    if not hasattr(value, "get_config") or inspect.isclass(value):
        raise ValueError(f"Column '{column}': {value!r} in its ev_option has no config that can be saved")
    return serialize_keras_object(value)


def _initializers() -> dict[str, type]:
    """Returns TensorFlow's initializer classes by name; v1 classes have precedence over those of Keras."""
    modules = (tf.keras.initializers, init_ops)
    return {name: cls for module in modules for name, cls in inspect.getmembers(module, inspect.isclass)}
