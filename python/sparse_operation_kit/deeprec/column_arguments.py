"""DeepRec's arguments of TensorFlow's functions of feature columns, and its sequence column.

TensorFlow has deprecated the functions. Its notices would name the wrappers, not the lines that call them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat import internals
from sparse_operation_kit.compat.internals import columns_v2
from sparse_operation_kit.deeprec.adaptive import AdaptiveCategoricalColumn, AdaptiveEmbeddingColumn
from sparse_operation_kit.deeprec.multihash import (
    MultiHashCategoricalColumn,
    multihash_embedding_column,
)
from sparse_operation_kit.feature_columns.categorical_column import categorical_column_with_embedding
from sparse_operation_kit.feature_columns.scopes import adaptive_masks

_COLUMNS = "tf.feature_column"


@replacements.implements(
    f"{_COLUMNS}.shared_embedding_columns",
    f"{_COLUMNS}.linear_model",
)
def with_do_fusion(original: Callable) -> Callable:
    """Wraps a function that takes `do_fusion` in DeepRec.

    There it selects fused ops. A lookup in a table is one op here in any case, and the lookups of ordinary
    variables are TensorFlow's.
    """

    def function(*args: Any, do_fusion: Any = False, **kwargs: Any) -> Any:
        _check_do_fusion(do_fusion)
        with internals.silenced():
            return original(*args, **kwargs)

    return function


@replacements.implements(f"{_COLUMNS}.embedding_column")
def with_deeprecs_columns(original: Callable) -> Callable:
    """Wraps `embedding_column`: `do_fusion`, and DeepRec's kinds of categorical columns."""

    def embedding_column(categorical_column: Any, *args: Any, do_fusion: Any = False, **kwargs: Any) -> Any:
        _check_do_fusion(do_fusion)
        if isinstance(categorical_column, MultiHashCategoricalColumn):
            return multihash_embedding_column(categorical_column, *args, **kwargs)
        with internals.silenced():
            column = original(categorical_column, *args, **kwargs)
        if not isinstance(categorical_column, AdaptiveCategoricalColumn):
            return column
        if column.max_norm is not None:
            raise ValueError(f"Column '{column.name}': max_norm is not supported for adaptive columns")
        return AdaptiveEmbeddingColumn(*column)

    return embedding_column


@replacements.implements(f"{_COLUMNS}.input_layer")
def with_masks(original: Callable) -> Callable:
    """Wraps `input_layer`: `adaptive_mask_tensors`."""

    def input_layer(*args: Any, adaptive_mask_tensors: Any = None, **kwargs: Any) -> Any:
        with adaptive_masks(adaptive_mask_tensors), internals.silenced():
            return original(*args, **kwargs)

    return input_layer


def _check_do_fusion(do_fusion: Any) -> None:
    if do_fusion is not None and not isinstance(do_fusion, (bool, np.bool_, str)):
        raise TypeError(f"do_fusion must be a bool or the name of a kind of fusion, not {do_fusion!r}")


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
