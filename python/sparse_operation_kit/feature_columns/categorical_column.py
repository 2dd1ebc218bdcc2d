"""Categorical columns for embedding variables, without a vocabulary or buckets."""

from __future__ import annotations

import collections
import dataclasses
import inspect
from typing import Any

import tensorflow as tf

from sparse_operation_kit.arguments import whole_number
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part
from sparse_operation_kit.compat.internals import (
    columns_v1,
    columns_v2,
    deserialize_keras_object,
    init_ops,
    register_feature_column,
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


# The number of buckets that TensorFlow sees, and that strings are hashed to. TensorFlow creates a column's
# variable with this number of rows; a table ignores it.
UNBOUNDED = 2**63 - 1


@register_feature_column
class EmbeddingCategoricalColumn(
    columns_v2.CategoricalColumn,
    columns_v1._CategoricalColumn,
    collections.namedtuple("EmbeddingCategoricalColumn", ("key", "dtype", "partition_num", "ev_option")),
):
    """See `categorical_column_with_embedding`."""

    # Options need not be hashable, but columns are keys of dictionaries.
    def __hash__(self) -> int:
        return hash((self.key, self.dtype, self.partition_num))

    _is_v2_column = True

    @property
    def name(self) -> str:
        """The feature's key."""
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, tf.io.VarLenFeature]:
        """The spec for `tf.io.parse_example`; integers are int64 in a `tf.train.Example`."""
        return {self.key: tf.io.VarLenFeature(tf.string if self.dtype == tf.string else tf.int64)}

    _parse_example_spec = parse_example_spec

    @property
    def num_buckets(self) -> int:
        """A number larger than any table, because keys are unbounded."""
        return UNBOUNDED

    _num_buckets = num_buckets

    @property
    def parents(self) -> list[str]:
        """The key of the feature that the column reads."""
        return [self.key]

    def get_config(self) -> dict[str, Any]:
        """Returns the column's config for `from_config`, which can be stored as JSON.

        Raises:
          ValueError: An initializer in the options has no config.
        """
        config = dict(zip(self._fields, self))
        return {**config, "dtype": self.dtype.name, "ev_option": options_config(self.key, self.ev_option)}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict | None = None, columns_by_name: dict | None = None
    ) -> EmbeddingCategoricalColumn:
        """Creates the column from its config. `custom_objects` maps names to classes of initializers."""
        del columns_by_name
        columns_v2._check_config_keys(config, cls._fields)
        options = options_from_config(config["ev_option"], custom_objects)
        dtype = tf.as_dtype(config["dtype"])
        return categorical_column_with_embedding(config["key"], dtype, config["partition_num"], options)

    def transform_feature(self, transformation_cache: Any, state_manager: Any) -> tf.SparseTensor:
        """Returns the feature's int64 keys."""
        return self._keys(transformation_cache.get(self.key, state_manager))

    def _transform_feature(self, inputs: Any) -> tf.SparseTensor:
        return self._keys(inputs.get(self.key))

    def get_sparse_tensors(self, transformation_cache: Any, state_manager: Any) -> Any:
        """Returns the feature's keys, without weights."""
        return columns_v2.CategoricalColumn.IdWeightPair(transformation_cache.get(self, state_manager), None)

    def _get_sparse_tensors(self, inputs: Any, weight_collections: Any = None, trainable: Any = None) -> Any:
        del weight_collections, trainable
        return columns_v2.CategoricalColumn.IdWeightPair(inputs.get(self), None)

    def _keys(self, feature: tf.Tensor | tf.SparseTensor) -> tf.SparseTensor:
        """Returns the int64 keys of a feature, without the padding of a dense feature ('' and -1)."""
        if feature.dtype != tf.string and not feature.dtype.is_integer:
            raise ValueError(
                f"Column '{self.key}': the feature is {feature.dtype.name}; keys are strings or integers"
            )
        if (feature.dtype == tf.string) != (self.dtype == tf.string):
            raise ValueError(
                f"Column '{self.key}': the feature is {feature.dtype.name}, but the column's dtype is "
                f"{self.dtype.name}"
            )
        sparse = columns_v2._to_sparse_input_and_drop_ignore_values(feature)
        if feature.dtype == tf.string:
            keys = hash_strings(sparse.values)
        else:
            keys = tf.cast(sparse.values, tf.int64)
        return tf.SparseTensor(sparse.indices, keys, sparse.dense_shape)


def hash_strings(strings: tf.Tensor) -> tf.Tensor:
    """Returns the keys of strings [n], an int64 tensor [n].

    A key is FarmHash's Fingerprint64 modulo 2^63 - 1, as in DeepRec, so that tables that DeepRec has trained
    are found. It depends only on the bytes: it is the same in every process, on every rank and machine.
    """
    return tf.strings.to_hash_bucket_fast(strings, UNBOUNDED)


def categorical_column_with_embedding(
    key: str, dtype: tf.DType = tf.string, partition_num: int | None = None, ev_option: Any = None
) -> EmbeddingCategoricalColumn:
    """Creates a categorical column of unbounded keys, whose embeddings are in an `EmbeddingVariable`.

    Pass it to `tf.feature_column.embedding_column`, `tf.compat.v1.feature_column.shared_embedding_columns`,
    `tf.feature_column.shared_embeddings` or `tf.feature_column.weighted_categorical_column`. Their columns
    work in `tf.compat.v1.feature_column.input_layer` and `DenseFeatures`. Columns created in a
    `group_embedding_column_scope` are looked up together with the scope's other columns.

    Every int64 is a key, including negative numbers. Strings are hashed to 63 bits. In a dense feature -1 and
    the empty string are padding and not keys, as in TensorFlow's columns. In a SparseTensor and a
    RaggedTensor they are ordinary keys.

    Args:
      key: The feature's name.
      dtype: tf.string, or an integer dtype.
      partition_num: DeepRec's number of partitions, None or an int of at least 1. Not used: tables are
        sharded over ranks by key.
      ev_option: None, or the options of the variable: an object with the attributes `init_option` (an
        `InitializerOption` or None), `filter_option` (a `CounterFilter`, a `CBFFilter` or None) and
        `evict_option` (a `GlobalStepEvict`, an `L2WeightEvict` or None). Its initializer, if any, replaces
        that of the embedding column.

    Raises:
      TypeError: `key`, `partition_num` or an option is of the wrong type.
      ValueError: `key` is empty, `dtype` is neither string nor integer, or `partition_num` is below 1.
    """
    if not isinstance(key, str):
        raise TypeError(f"categorical_column_with_embedding: key must be a string, not {key!r}")
    if not key:
        raise ValueError("categorical_column_with_embedding: key must not be empty")
    dtype = tf.as_dtype(dtype)
    if dtype != tf.string and not dtype.is_integer:
        raise ValueError(f"Column '{key}': dtype must be tf.string or an integer dtype, not {dtype.name}")
    if partition_num is not None:
        whole_number(partition_num, f"Column '{key}': partition_num", kind="an int or None")
    _check_options(key, ev_option)
    replacements.install(Part.FEATURE_COLUMNS)
    return EmbeddingCategoricalColumn(key, dtype, partition_num, ev_option)


# Columns that add weights to another, or make its feature a sequence.
_OVER_OTHERS = (
    columns_v2.WeightedCategoricalColumn,
    columns_v1._WeightedCategoricalColumn,
    columns_v2.SequenceCategoricalColumn,
)


def embedding_root(column: Any) -> Any:
    """Returns the EmbeddingCategoricalColumn that a column is or has below it; None for other columns."""
    while isinstance(column, _OVER_OTHERS):
        column = column.categorical_column
    return column if isinstance(column, EmbeddingCategoricalColumn) else None


_OPTIONS = {
    "init_option": (row_policies.InitializerOption,),
    "filter_option": (row_policies.CounterFilter, row_policies.CBFFilter),
    "evict_option": (row_policies.GlobalStepEvict, row_policies.L2WeightEvict),
}


def _check_options(key: str, ev_option: Any) -> None:
    if ev_option is None:
        return
    for name, kinds in _OPTIONS.items():
        if not hasattr(ev_option, name):
            raise TypeError(f"Column '{key}': ev_option has no {name}: {ev_option!r}")
        option = getattr(ev_option, name)
        if option is not None and not isinstance(option, kinds):
            known = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"Column '{key}': ev_option.{name} must be None or {known}, not {option!r}")
