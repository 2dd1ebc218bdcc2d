"""Feature columns whose embeddings are embedding variables, looked up in groups.

`categorical_column_with_embedding` creates a categorical column of unbounded keys. The columns that
`tf.feature_column.embedding_column` and similar functions create from it use an `EmbeddingVariable`. Columns
created in the same `group_embedding_column_scope` are looked up in one op by
`tf.compat.v1.feature_column.input_layer` and `DenseFeatures`. `training_scope` sets whether lookups insert
keys.
"""

# Importing these modules registers their replacements of TensorFlow functions, and the classes that
# TensorFlow finds by name when it deserializes columns.
from sparse_operation_kit.feature_columns import (  # noqa: F401
    embedding_columns,
    input_layer,
    linear_model,
)
from sparse_operation_kit.feature_columns.categorical_column import categorical_column_with_embedding
from sparse_operation_kit.feature_columns.scopes import group_embedding_column_scope, training_scope

__all__ = [
    "categorical_column_with_embedding",
    "group_embedding_column_scope",
    "training_scope",
]
