"""Makes TensorFlow create this library's embedding columns over `categorical_column_with_embedding`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat.internals import columns_v1, columns_v2
from sparse_operation_kit.feature_columns import embedding_columns, scopes
from sparse_operation_kit.feature_columns.categorical_column import embedding_root

_COLUMNS_V1 = "tensorflow.python.feature_column.feature_column"
_COLUMNS_V2 = "tensorflow.python.feature_column.feature_column_v2"


def _making(theirs: type, ours: type) -> Callable[[Callable], Callable]:
    """Wraps a column's constructor so that it creates `ours` over this library's categorical columns."""

    def wrap(original: Callable) -> Callable:
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

        return make

    return wrap


@replacements.implements(f"{_COLUMNS_V2}.IndicatorColumn.__new__")
def _refuse_indicators(original: Callable) -> Callable:
    def make(cls: type, categorical_column: Any, *args: Any, **kwargs: Any) -> Any:
        if embedding_root(categorical_column) is not None:
            raise ValueError(
                f"Column '{categorical_column.name}': an indicator_column needs a number of buckets, which "
                "categorical_column_with_embedding does not have; use an embedding_column"
            )
        return original(cls, categorical_column, *args, **kwargs)

    return make


for _name, _theirs, _ours in (
    (f"{_COLUMNS_V2}.EmbeddingColumn", columns_v2.EmbeddingColumn, embedding_columns.TableEmbeddingColumn),
    (
        f"{_COLUMNS_V2}.SharedEmbeddingColumn",
        columns_v2.SharedEmbeddingColumn,
        embedding_columns.TableSharedEmbeddingColumn,
    ),
    (
        f"{_COLUMNS_V1}._SharedEmbeddingColumn",
        columns_v1._SharedEmbeddingColumn,
        embedding_columns.TableSharedEmbeddingColumnV1,
    ),
):
    replacements.implements(f"{_name}.__new__")(_making(_theirs, _ours))
