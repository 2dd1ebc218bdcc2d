"""DeepRec's sequence column of unbounded keys."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.internals import columns_v2
from sparse_operation_kit.feature_columns.categorical_column import categorical_column_with_embedding


def sequence_categorical_column_with_embedding(
    key: str,
    dtype: tf.DType = tf.string,
    partition_num: int | None = None,
    ev_option: Any = None,
) -> Any:
    """Creates a column of sequences of unbounded keys, whose embeddings are in an embedding variable.

    Pass it to `tf.feature_column.embedding_column`. The embedding column is for
    `tf.keras.experimental.SequenceFeatures`, and in TensorFlow 1.15 for
    `tf.contrib.feature_column.sequence_input_layer`; the steps of a sequence are not combined.

    Args:
      key: This and the other arguments are those of `categorical_column_with_embedding`.
    """
    column = categorical_column_with_embedding(key, dtype, partition_num, ev_option)
    return columns_v2.SequenceCategoricalColumn(column)
