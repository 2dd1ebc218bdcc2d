"""`linear_model` over categorical columns with embedding variables: tables hold the weights of keys."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.feature_columns.categorical_column import embedding_root
from sparse_operation_kit.feature_columns.lookups import (
    LookupRequest,
    look_up_alone,
    outputs_of_columns,
    sparse_features,
)
from sparse_operation_kit.feature_columns.table_variables import TableSpec, check_table, making_tables
from sparse_operation_kit.newer_python import set_within

_COLUMNS_V1 = "tensorflow.python.feature_column.feature_column"
_COLUMNS_V2 = "tensorflow.python.feature_column.feature_column_v2"
# The lookups of the columns of the model that is being built; None if no model is being built.
_wanted: contextvars.ContextVar[list[LookupRequest] | None] = contextvars.ContextVar(
    "linear_model_lookups", default=None
)


@replacements.wraps(f"{_COLUMNS_V1}._FCLinearWrapper.build")
def with_tables_for_weights(original: Callable, self: Any, shape: Any) -> None:
    """Creates a column's weights: weights of unbounded keys are in a table."""
    column = self._feature_column
    if embedding_root(column) is None:
        return original(self, shape)
    spec = _spec(column, self._units)
    with making_tables(spec):
        original(self, shape)
    check_table(spec, self._weight_var)


@replacements.wraps(f"{_COLUMNS_V1}._create_categorical_column_weighted_sum")
def with_table_lookups(
    original: Callable,
    column: Any,
    builder: Any,
    units: int,
    sparse_combiner: str,
    weight_collections: Any,
    trainable: bool,
    weight_var: Any = None,
) -> tf.Tensor:
    """Returns the sum of a categorical column's weights."""
    if embedding_root(column) is None:
        return original(
            column, builder, units, sparse_combiner, weight_collections, trainable, weight_var=weight_var
        )
    tensors = column._get_sparse_tensors(builder, weight_collections, trainable)
    ids, weights = _as_matrix(tensors.id_tensor), tensors.weight_tensor
    request = LookupRequest(check_table(_spec(column, units), weight_var), ids, weights, sparse_combiner)
    wanted = _wanted.get()
    if wanted is None:
        return look_up_alone(request, "weighted_sum")
    wanted.append(request)
    # `with_one_lookup` adds the real sums when the lookups of all columns are known.
    zeros = tf.zeros(tf.stack([tf.cast(ids.dense_shape[0], tf.int32), units]))
    zeros.set_shape([ids.shape[0], units])
    return zeros


@replacements.wraps(f"{_COLUMNS_V2}._StateManagerImpl.create_variable")
def without_estimators_weights(
    original: Callable, self: Any, feature_column: Any, name: str, *args: Any, **kwargs: Any
) -> tf.Variable:
    """Creates variables, but not those of Estimator's linear models, which read all weights."""
    if name == "weights" and embedding_root(feature_column) is not None:
        raise ValueError(
            f"Column '{feature_column.name}': Estimator's own linear models summarize all weights, which "
            "an embedding variable does not allow; call feature_column.linear_model in a model_fn"
        )
    return original(self, feature_column, name, *args, **kwargs)


@replacements.wraps(f"{_COLUMNS_V1}._LinearModel.call")
@tf.autograph.experimental.do_not_convert
def with_one_lookup(original: Callable, model: Any, features: Any) -> tf.Tensor:
    """Calls a linear model: the weights of all columns with tables are read in one lookup."""
    wanted: list[LookupRequest] = []
    with set_within(_wanted, wanted):
        predictions = original(model, sparse_features(features))
    return tf.add_n([predictions, *outputs_of_columns(wanted)]) if wanted else predictions


def _spec(column: Any, units: int) -> TableSpec:
    options = embedding_root(column).ev_option
    return TableSpec(column.name, units, tf.compat.v1.zeros_initializer(), options, initializer_first=True)


def _as_matrix(ids: tf.SparseTensor) -> tf.SparseTensor:
    return ids if ids.shape.rank == 2 else tf.sparse.reshape(ids, [tf.shape(ids)[0], -1])
