"""`DenseFeatures` for columns in groups: collects the columns' lookups first, then runs them together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat.internals import call_with_training, columns_v2, name_for_variable_scope
from sparse_operation_kit.feature_columns.embedding_columns import in_groups, looked_up_before
from sparse_operation_kit.feature_columns.lookups import (
    check_batch_sizes,
    outputs_of_columns,
    side_by_side,
    sparse_features,
)
from sparse_operation_kit.feature_columns.scopes import adaptive_masks, training_scope


@replacements.implements("tf.keras.layers.DenseFeatures.call")
def with_groups(original: Callable) -> Callable:
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
        outputs = side_by_side(requests)
        return outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=1)
    rows = outputs_of_columns(requests)
    with looked_up_before(grouped, rows):
        return call_with_training(original, layer, features, cols_to_output_tensors, training)


def _as_bool(training: Any) -> bool | tf.Tensor:
    """Returns `training` as a bool. Keras may pass its learning phase, an integer."""
    return tf.cast(training, tf.bool) if tf.is_tensor(training) else bool(training)
