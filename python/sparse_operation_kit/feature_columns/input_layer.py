"""`input_layer` for columns in groups: collects the columns' lookups first, then runs them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat import notices
from sparse_operation_kit.compat.internals import columns_v1
from sparse_operation_kit.feature_columns.embedding_columns import TableColumn, in_groups
from sparse_operation_kit.feature_columns.lookups import (
    LookupRequest,
    check_batch_sizes,
    outputs_of_columns,
    side_by_side,
    sparse_features,
)


@replacements.implements("tensorflow.python.feature_column.feature_column._internal_input_layer")
def with_groups(original: Callable) -> Callable:
    """Wraps TensorFlow's function behind `input_layer`; calls without columns in groups are passed on."""

    def input_layer(
        features: dict[str, Any],
        feature_columns: Any,
        weight_collections: Sequence[str] | None = None,
        trainable: bool = True,
        cols_to_vars: dict | None = None,
        scope: Any = None,
        cols_to_output_tensors: dict | None = None,
        from_template: bool = False,
    ) -> tf.Tensor:
        features = sparse_features(features)
        if isinstance(feature_columns, columns_v1._FeatureColumn):
            # Most columns are tuples: a list would have their fields.
            feature_columns = [feature_columns]
        elif not isinstance(feature_columns, dict) and isinstance(feature_columns, Iterable):
            # An iterator can be used only once.
            feature_columns = list(feature_columns)
        if not in_groups(feature_columns if isinstance(feature_columns, list) else [feature_columns]):
            return original(
                features,
                feature_columns,
                weight_collections=weight_collections,
                trainable=trainable,
                cols_to_vars=cols_to_vars,
                scope=scope,
                cols_to_output_tensors=cols_to_output_tensors,
                from_template=from_template,
            )
        columns = _checked(feature_columns)
        builder = _Builder(columns, weight_collections, trainable, cols_to_vars, cols_to_output_tensors)
        if from_template:
            return builder.build(features)
        with tf.compat.v1.variable_scope(scope, default_name="input_layer", values=features.values()):
            return builder.build(features)

    return input_layer


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
        weight_collections: Sequence[str] | None,
        trainable: bool,
        cols_to_vars: dict | None,
        cols_to_output_tensors: dict | None,
    ) -> None:
        keys = tf.compat.v1.GraphKeys
        self._columns = columns
        self._weight_collections = list(weight_collections or [])
        for collection in (keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES):
            if collection not in self._weight_collections:
                self._weight_collections.append(collection)
        self._trainable = trainable
        self._cols_to_vars = cols_to_vars
        self._cols_to_output_tensors = cols_to_output_tensors

    def build(self, features: dict[str, Any]) -> tf.Tensor:
        """Returns the columns' outputs, concatenated along the last dimension."""
        inputs = columns_v1._LazyBuilder(features)
        # TensorFlow has deprecated the columns' methods that its own `input_layer` calls.
        with notices.silenced():
            wanted = [self._of_column(column, inputs) for column in self._columns]
        check_batch_sizes(wanted, self._columns)
        if self._cols_to_output_tensors is None:
            outputs = side_by_side(wanted)
        else:
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
