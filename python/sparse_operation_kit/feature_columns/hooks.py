"""Makes TensorFlow's feature columns know embedding variables and groups.

`install` replaces what constructs embedding columns, so that those over our categorical columns are ours, and
what is behind `input_layer`, `linear_model` and `DenseFeatures`. All else goes to the originals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.feature_column import feature_column as columns_v1
from tensorflow.python.feature_column import feature_column_v2 as columns_v2

from sparse_operation_kit import compat
from sparse_operation_kit.core.replacements import Replacements
from sparse_operation_kit.feature_columns import (
    dense_features,
    embedding_columns,
    input_layer,
    linear_model,
    scopes,
)
from sparse_operation_kit.feature_columns.categorical_column import embedding_root

_replaced = Replacements()


def install() -> None:
    """Makes feature columns know embedding variables, in the whole process. Harmless when done already.

    Not thread-safe, as building graphs is not.
    """
    if _replaced:
        return
    for theirs, ours in (
        (columns_v2.EmbeddingColumn, embedding_columns.TableEmbeddingColumn),
        (columns_v2.SharedEmbeddingColumn, embedding_columns.TableSharedEmbeddingColumn),
        (columns_v1._SharedEmbeddingColumn, embedding_columns.TableSharedEmbeddingColumnV1),
    ):
        _replaced.replace(theirs, "__new__", _making(theirs, ours))
    _replaced.replace(columns_v2.IndicatorColumn, "__new__", _refuse_indicators)
    _replaced.replace(columns_v1, "_internal_input_layer", input_layer.with_groups)
    _replaced.replace(columns_v1, "_create_categorical_column_weighted_sum", linear_model.with_table_lookups)
    _replaced.replace(
        columns_v2._StateManagerImpl, "create_variable", linear_model.without_estimators_weights
    )
    _replaced.replace(columns_v1._FCLinearWrapper, "build", linear_model.with_tables_for_weights)
    _replaced.replace(columns_v1._LinearModel, "call", linear_model.with_one_lookup)
    for layer in compat.dense_features_layers():
        _replaced.replace(layer, "call", dense_features.with_groups)


def uninstall() -> None:
    """Undoes `install`: classes and functions are as they were. Columns that exist stay what they are."""
    _replaced.undo()


def is_installed() -> bool:
    """Whether feature columns know embedding variables now."""
    return bool(_replaced)


def _making(theirs: type, ours: type) -> Callable[[Callable], Any]:
    """Wraps a column's constructor so that it makes `ours` over our categorical columns."""

    def wrap(original: Callable) -> Any:
        def make(cls: type, categorical_column: Any, *args: Any, **kwargs: Any) -> Any:
            if cls not in (theirs, ours) or embedding_root(categorical_column) is None:
                return original(cls, categorical_column, *args, **kwargs)
            column = original(ours, categorical_column, *args, **kwargs)
            if column.max_norm is not None:
                raise ValueError(
                    f"Column '{column.name}': max_norm={column.max_norm} is not supported for embedding "
                    "variables; clip the column's output, or look up with tf.nn.embedding_lookup"
                )
            column.group = scopes.current_group()
            return column

        return staticmethod(make)

    return wrap


def _refuse_indicators(original: Callable) -> Any:
    def make(cls: type, categorical_column: Any, *args: Any, **kwargs: Any) -> Any:
        if embedding_root(categorical_column) is not None:
            raise ValueError(
                f"Column '{categorical_column.name}': an indicator_column needs a number of buckets, which "
                "categorical_column_with_embedding has not; use an embedding_column"
            )
        return original(cls, categorical_column, *args, **kwargs)

    return staticmethod(make)
