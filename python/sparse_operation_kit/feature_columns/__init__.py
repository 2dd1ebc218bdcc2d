"""Feature columns whose embeddings are embedding variables, looked up in groups.

`categorical_column_with_embedding` makes a categorical column of unbounded keys; what
`tf.feature_column.embedding_column` and the like make of it has an `EmbeddingVariable`. Those made inside one
`group_embedding_column_scope` are looked up in one op by `tf.compat.v1.feature_column.input_layer` and by
`DenseFeatures`. `training_scope` says whether lookups insert keys.
"""

# They register what is replaced of TensorFlow's, and the classes that TensorFlow looks up by name when it
# deserializes columns.
from sparse_operation_kit.feature_columns import (  # noqa: F401
    column_constructors,
    dense_features,
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
