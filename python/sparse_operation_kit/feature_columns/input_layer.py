"""`input_layer` and `DenseFeatures` for columns in groups: their lookups are collected, then run together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat import internals
from sparse_operation_kit.compat.internals import (
    call_with_training,
    columns_v1,
    columns_v2,
    name_for_variable_scope,
)
from sparse_operation_kit.feature_columns.embedding_columns import TableColumn, in_groups, looked_up_before
from sparse_operation_kit.feature_columns.lookups import (
    LookupRequest,
    check_batch_sizes,
    outputs_of_columns,
    side_by_side,
    sparse_features,
)
from sparse_operation_kit.feature_columns.scopes import adaptive_masks, training_scope


@replacements.wraps("tensorflow.python.feature_column.feature_column._internal_input_layer")
def with_groups(
    original: Callable, features: dict[str, Any], feature_columns: Any, *args: Any, **kwargs: Any
) -> tf.Tensor:
    """Wraps TensorFlow's function behind `input_layer`; calls without columns in groups are passed on."""
    features = sparse_features(features)
    if isinstance(feature_columns, columns_v1._FeatureColumn):
        # Most columns are tuples: a list would have their fields.
        feature_columns = [feature_columns]
    elif not isinstance(feature_columns, dict) and isinstance(feature_columns, Iterable):
        # An iterator can be used only once.
        feature_columns = list(feature_columns)
    if not in_groups(feature_columns if isinstance(feature_columns, list) else [feature_columns]):
        return original(features, feature_columns, *args, **kwargs)
    return _Builder(_checked(feature_columns), *args, **kwargs).build(features)


def _checked(feature_columns: Any) -> list[Any]:
    columns = columns_v1._normalize_feature_columns(feature_columns)
    for column in columns:
        if not isinstance(column, columns_v1._DenseColumn):
            raise ValueError(
                f"input_layer takes dense columns; {column} is a categorical column: wrap it in an "
                "embedding_column or an indicator_column"
            )
    return sorted(columns, key=lambda column: column.name)


class _Builder:
    """One call of `input_layer`."""

    def __init__(
        self,
        columns: Sequence[Any],
        weight_collections: Sequence[str] | None = None,
        trainable: bool = True,
        cols_to_vars: dict | None = None,
        scope: Any = None,
        cols_to_output_tensors: dict | None = None,
        from_template: bool = False,
    ) -> None:
        keys = tf.compat.v1.GraphKeys
        self._columns = columns
        self._weight_collections = list(weight_collections or [])
        for collection in (keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES):
            if collection not in self._weight_collections:
                self._weight_collections.append(collection)
        self._trainable = trainable
        self._cols_to_vars = cols_to_vars
        self._scope, self._from_template = scope, from_template
        self._cols_to_output_tensors = cols_to_output_tensors

    def build(self, features: dict[str, Any]) -> tf.Tensor:
        """Returns the columns' outputs, concatenated along the last dimension."""
        if self._from_template:
            return self._in_scope(features)
        with tf.compat.v1.variable_scope(self._scope, default_name="input_layer", values=features.values()):
            return self._in_scope(features)

    def _in_scope(self, features: dict[str, Any]) -> tf.Tensor:
        inputs = columns_v1._LazyBuilder(features)
        # TensorFlow has deprecated the columns' methods that its own `input_layer` calls.
        with internals.silenced():
            wanted = [self._of_column(column, inputs) for column in self._columns]
        check_batch_sizes(wanted, self._columns)
        if self._cols_to_output_tensors is None:
            return side_by_side(wanted)
        outputs = outputs_of_columns(wanted)
        self._cols_to_output_tensors.update(zip(self._columns, outputs))
        return outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=1)

    def _of_column(self, column: Any, inputs: Any) -> tf.Tensor | LookupRequest:
        """Returns a column's output or, for a column in a group, its lookup."""
        with tf.compat.v1.variable_scope(None, default_name=column._var_scope_name):
            if isinstance(column, TableColumn) and column.group is not None:
                wanted = column.request(inputs, self._weight_collections, self._trainable)
            else:
                output = column._get_dense_tensor(
                    inputs, weight_collections=self._weight_collections, trainable=self._trainable
                )
                wanted = tf.reshape(output, [tf.shape(output)[0], column._variable_shape.num_elements()])
            if self._cols_to_vars is not None:
                self._cols_to_vars[column] = tf.compat.v1.get_collection(
                    tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, scope=tf.compat.v1.get_variable_scope().name
                )
        return wanted


@replacements.implements("tf.keras.layers.DenseFeatures.call")
def with_groups_of_layer(original: Callable) -> Callable:
    """Wraps `DenseFeatures.call`; `training` applies to all columns with embedding variables.

    `adaptive_mask_tensors` is for columns of DeepRec's adaptive embedding, as in `input_layer`.
    """

    # Keras inspects the names of the arguments.
    def call(
        self: Any,
        features: Any,
        cols_to_output_tensors: dict | None = None,
        training: Any = None,
        adaptive_mask_tensors: Mapping[str, Any] | None = None,
    ) -> tf.Tensor:
        return _call(original, self, features, cols_to_output_tensors, training, adaptive_mask_tensors)

    return call


@tf.autograph.experimental.do_not_convert
def _call(
    original: Callable,
    layer: Any,
    features: Any,
    cols_to_output_tensors: dict | None,
    training: Any,
    masks: Mapping[str, Any] | None,
) -> tf.Tensor:
    with contextlib.ExitStack() as stack:
        stack.enter_context(adaptive_masks(masks))
        if training is not None:
            stack.enter_context(training_scope(_as_bool(training)))
        return _call_in_scope(original, layer, features, cols_to_output_tensors, training)


def _call_in_scope(
    original: Callable, layer: Any, features: Any, cols_to_output_tensors: dict | None, training: Any
) -> tf.Tensor:
    features = sparse_features(features)
    grouped = [column for column in layer._feature_columns if in_groups([column])]
    if not grouped or not isinstance(features, dict):
        return call_with_training(original, layer, features, cols_to_output_tensors, training)
    cache = columns_v2.FeatureTransformationCache(features)
    requests = []
    for column in grouped:
        with tf.name_scope(name_for_variable_scope(column.name)):
            requests.append(column.state_request(cache, layer._state_manager))
    if cols_to_output_tensors is None and len(grouped) == len(layer._feature_columns):
        check_batch_sizes(requests, grouped)
        return side_by_side(requests)
    rows = outputs_of_columns(requests)
    with looked_up_before(grouped, rows):
        return call_with_training(original, layer, features, cols_to_output_tensors, training)


def _as_bool(training: Any) -> bool | tf.Tensor:
    """Returns `training` as a bool. Keras may pass its learning phase, an integer."""
    return tf.cast(training, tf.bool) if tf.is_tensor(training) else bool(training)
