"""DeepRec's multi-hash variables: an id's row is composed of rows of its quotient and its remainder.

The technique is that of "Compositional Embeddings Using Complementary Partitions for Memory-Efficient
Recommendation Systems" (arXiv:1909.02107): two small tables give each id a row of its own.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.internals import columns_v1, columns_v2
from sparse_operation_kit.feature_columns.categorical_column import categorical_column_with_embedding
from sparse_operation_kit.feature_columns.table_variables import create_state
from sparse_operation_kit.lookup import bags
from sparse_operation_kit.lookup.composed import ComposedTable, look_up_bags

_OPERATIONS = {"add": tf.add, "mul": tf.multiply, "mult": tf.multiply, "concat": None}


class MultiHashVariable(ComposedTable):
    """Two ordinary variables, of quotients and of remainders. See `get_multihash_variable`."""

    def __init__(self, name: str, tables: Sequence[Any], sizes: Sequence[int], operation: str) -> None:
        self.name = name
        self.tables = list(tables)
        self.operation = operation
        self._sizes = sizes

    def look_up(self, ids: tf.Tensor, blocknums: Any = None) -> tf.Tensor:
        """See `ComposedTable`. An id without rows is an error when the graph runs."""
        self._refuse_blocknums(blocknums)
        ids = self._checked(ids)
        parts = (tf.math.floordiv(ids, self._sizes[0]), tf.math.floormod(ids, self._sizes[1]))
        rows = [tf.compat.v1.nn.embedding_lookup(table, part) for table, part in zip(self.tables, parts)]
        combine = _OPERATIONS[self.operation]
        return tf.concat(rows, axis=1) if combine is None else combine(*rows)

    def _checked(self, ids: tf.Tensor) -> tf.Tensor:
        rows = self._sizes[0]
        has_rows = tf.logical_and(ids >= 0, ids < rows**2)
        message = (
            f"Lookup in multi-hash variable '{self.name}': with {rows} rows of quotients, ids must be from 0 "
            f"to {rows**2 - 1}, but are"
        )
        wrong = tf.boolean_mask(ids, tf.logical_not(has_rows))
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(has_rows), [message, wrong])]):
            return tf.identity(ids)

    def of_bags(self, ids: tf.Tensor, blocknums: Any) -> None:
        """See `ComposedTable`."""
        del ids
        self._refuse_blocknums(blocknums)

    def _refuse_blocknums(self, blocknums: Any) -> None:
        if blocknums is not None:
            raise ValueError(f"Lookup in multi-hash variable '{self.name}': it has no blocknums")


def check_multihash(who: str, sizes: Any, strategy: Any, operation: Any) -> None:
    """Checks the arguments that a variable and a column have in common.

    Raises:
      ValueError: The strategy or the operation is unknown, or there are not two positive sizes.
    """
    if strategy != "Q-R":
        raise ValueError(f"{who}: complementary_strategy must be 'Q-R', not {strategy!r}")
    if operation not in _OPERATIONS:
        raise ValueError(f"{who}: operation must be 'add', 'mul' or 'concat', not {operation!r}")
    if len(sizes) != 2 or not all(hasattr(size, "__index__") and size > 0 for size in sizes):
        raise ValueError(f"{who}: 'Q-R' needs two tables with a row or more, not {list(sizes)}")


def get_multihash_variable(
    name: str,
    dims: Sequence[Sequence[int]],
    num_of_partitions: int = 2,
    complementary_strategy: str = "Q-R",
    operation: str = "add",
    dtype: Any = tf.float32,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = tf.VariableSynchronization.AUTO,
    aggregation: Any = tf.VariableAggregation.NONE,
) -> MultiHashVariable:
    """Creates a variable whose row of an id is composed of rows of two small ordinary variables.

    `tf.nn.embedding_lookup`, `embedding_lookup_sparse` and `safe_embedding_lookup_sparse` look it up. The row
    of id `i` is that of `i // dims[0][0]` in the first variable and of `i % dims[1][0]` in the second. So ids
    must be less than the square of `dims[0][0]`; others are an error when the graph runs.

    Args:
      name: The variables are called `name_0` and `name_1`, in the current variable scope.
      dims: `[[rows, dim], [rows, dim]]`. Unless the operation is "concat", the dims are equal.
      num_of_partitions: 2.
      complementary_strategy: "Q-R": quotient and remainder.
      operation: How the two rows are composed: "add", "mul" (or "mult") or "concat".
      dtype: As in `tf.compat.v1.get_variable`; Python's float means tf.float32.
      initializer: This and all other arguments are those of `tf.compat.v1.get_variable`.

    Raises:
      ValueError: The dims do not fit, or the strategy, the operation or `num_of_partitions` is unknown.
    """
    who = f"get_multihash_variable('{name}')"
    if num_of_partitions != 2:
        raise ValueError(f"{who}: num_of_partitions must be 2, not {num_of_partitions}")
    shapes = [list(shape) for shape in dims]
    if any(len(shape) != 2 for shape in shapes):
        raise ValueError(f"{who}: dims must be [[rows, dim], [rows, dim]], not {dims}")
    sizes = [shape[0] for shape in shapes]
    check_multihash(who, sizes, complementary_strategy, operation)
    check_widths(who, [shape[1] for shape in shapes], operation)
    tables = [
        tf.compat.v1.get_variable(
            f"{name}_{i}",
            shape,
            dtype=tf.float32 if dtype is float else dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=collections,
            caching_device=caching_device,
            partitioner=partitioner,
            validate_shape=validate_shape,
            use_resource=use_resource,
            custom_getter=custom_getter,
            constraint=constraint,
            synchronization=synchronization,
            aggregation=aggregation,
        )
        for i, shape in enumerate(shapes)
    ]
    return MultiHashVariable(name, tables, sizes, operation)


def check_widths(who: str, widths: Sequence[int], operation: str) -> None:
    """Checks that rows of these widths can be composed by the operation.

    Raises:
      ValueError: They cannot.
    """
    if operation != "concat" and widths[0] != widths[1]:
        raise ValueError(f"{who}: operation '{operation}' needs rows of one width, not of {list(widths)}")


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

    _is_v2_column = True

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
            create_state(state_manager, self, name, shape, self.initializer)

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
