"""Columns of multi-hash variables: see `multihash`."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.internals import columns_v1, columns_v2
from sparse_operation_kit.deeprec.multihash import (
    MultiHashVariable,
    check_multihash,
    check_widths,
    get_multihash_variable,
)
from sparse_operation_kit.feature_columns.categorical_column import categorical_column_with_embedding
from sparse_operation_kit.lookup import bags
from sparse_operation_kit.lookup.composed import look_up_bags

# The name of the multi-hash variable, and those of the variables that it consists of.
_WEIGHTS = "embedding_weights"
_PARTS = (f"{_WEIGHTS}_0", f"{_WEIGHTS}_1")

MultiHashCategoricalColumn = collections.namedtuple(
    "MultiHashCategoricalColumn", ("keys", "dims", "complementary_strategy", "operation")
)


def categorical_column_with_multihash(
    key: str,
    dims: Sequence[int],
    complementary_strategy: str = "Q-R",
    operation: str = "concat",
    dtype: tf.DType = tf.int64,
    partition_num: int | None = None,
) -> MultiHashCategoricalColumn:
    """Creates a column for `tf.feature_column.embedding_column`, whose variable is a multi-hash variable.

    The embedding column's `dimension` is a pair: the dims of the two variables' rows.

    Args:
      key: The feature's name.
      dims: The numbers of rows of the two variables.
      complementary_strategy: "Q-R".
      operation: "add", "mul" or "concat".
      dtype: An integer dtype.
      partition_num: Has no effect.

    Raises:
      TypeError, ValueError: An argument is wrong.
    """
    column = categorical_column_with_embedding(key, dtype, partition_num)
    if column.dtype == tf.string:
        raise ValueError(f"Column '{key}': a multi-hash column has integers, of which it takes quotients")
    check_multihash(f"Column '{key}'", dims, complementary_strategy, operation)
    return MultiHashCategoricalColumn(column, tuple(dims), complementary_strategy, operation)


def multihash_embedding_column(
    categorical_column: MultiHashCategoricalColumn,
    dimension: Sequence[int],
    combiner: str = "mean",
    initializer: Any = None,
    ckpt_to_load_from: None = None,
    tensor_name_in_ckpt: None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> MultiHashEmbeddingColumn:
    """`embedding_column` over a multi-hash column, with its arguments.

    Raises:
      ValueError: The dimension is not a pair that the operation can compose, or a checkpoint is given.
    """
    del use_safe_embedding_lookup
    who = f"Column '{categorical_column.keys.key}'"
    if not isinstance(dimension, (tuple, list)) or len(dimension) != 2:
        raise ValueError(f"{who}: the dimension of a multi-hash column must be a pair, not {dimension!r}")
    check_widths(who, dimension, categorical_column.operation)
    if ckpt_to_load_from is not None or tensor_name_in_ckpt is not None:
        raise ValueError(
            f"{who}: ckpt_to_load_from must be None; use tf.compat.v1.train.init_from_checkpoint"
        )
    if initializer is None:
        initializer = tf.compat.v1.truncated_normal_initializer(stddev=1 / math.sqrt(sum(dimension)))
    return MultiHashEmbeddingColumn(
        categorical_column, tuple(dimension), combiner, initializer, max_norm, trainable
    )


class MultiHashEmbeddingColumn(
    columns_v2.DenseColumn,
    columns_v1._DenseColumn,
    collections.namedtuple(
        "MultiHashEmbeddingColumn",
        ("categorical_column", "dimension", "combiner", "initializer", "max_norm", "trainable"),
    ),
):
    """See `multihash_embedding_column`."""

    @property
    def _is_v2_column(self) -> bool:
        return True

    @property
    def name(self) -> str:
        """The column's name, formed as for other embedding columns."""
        return f"{self.categorical_column.keys.key}_embedding"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """The spec for `tf.io.parse_example`."""
        return self.categorical_column.keys.parse_example_spec

    _parse_example_spec = parse_example_spec

    @property
    def variable_shape(self) -> tf.TensorShape:
        """The shape of a sample's output."""
        is_concat = self.categorical_column.operation == "concat"
        return tf.TensorShape([sum(self.dimension) if is_concat else self.dimension[0]])

    _variable_shape = variable_shape

    @property
    def parents(self) -> list[Any]:
        """The column of the ids."""
        return [self.categorical_column.keys]

    def get_config(self) -> dict[str, Any]:
        """Raises an error: the column has no config."""
        raise NotImplementedError(f"Column '{self.name}': a multi-hash column has no config")

    def transform_feature(self, transformation_cache: Any, state_manager: Any) -> tf.SparseTensor:
        """Returns the ids."""
        return transformation_cache.get(self.categorical_column.keys, state_manager)

    def _transform_feature(self, inputs: Any) -> tf.SparseTensor:
        return inputs.get(self.categorical_column.keys)

    def get_dense_tensor(self, transformation_cache: Any, state_manager: Any) -> tf.Tensor:
        """Returns the outputs [batch, width] in a `DenseFeatures`."""
        column = self.categorical_column
        tables = [state_manager.get_variable(self, name) for name in _PARTS]
        variable = MultiHashVariable(f"{self.name}/{_WEIGHTS}", tables, column.dims, column.operation)
        return self._looked_up(variable, transformation_cache.get(self, state_manager))

    def create_state(self, state_manager: Any) -> None:
        """Creates both variables for a `DenseFeatures`."""
        for name, *shape in zip(_PARTS, self.categorical_column.dims, self.dimension):
            state_manager.create_variable(
                self,
                name=name,
                shape=shape,
                dtype=tf.float32,
                trainable=self.trainable,
                use_resource=True,
                initializer=self.initializer,
            )

    def _get_dense_tensor(
        self, inputs: Any, weight_collections: Any = None, trainable: Any = None
    ) -> tf.Tensor:
        column = self.categorical_column
        variable = get_multihash_variable(
            _WEIGHTS,
            list(zip(column.dims, self.dimension)),
            complementary_strategy=column.complementary_strategy,
            operation=column.operation,
            initializer=self.initializer,
            trainable=self.trainable and trainable is not False,
            collections=weight_collections,
        )
        return self._looked_up(variable, inputs.get(self))

    def _looked_up(self, variable: MultiHashVariable, ids: tf.SparseTensor) -> tf.Tensor:
        matrix, _ = bags.pruned(*bags.as_matrices(ids, None), self.combiner)
        rows = look_up_bags(variable, matrix, None, self.combiner, self.max_norm, None)
        return bags.with_leading_dimensions(rows, ids)
