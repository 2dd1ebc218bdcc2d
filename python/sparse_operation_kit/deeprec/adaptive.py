"""DeepRec's adaptive embedding: rare ids share the rows of a small variable, frequent ones have their own.

A mask says of each id which kind it is. When an id gets its own row, that starts as the shared row.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.arguments import whole_number
from sparse_operation_kit.compat.internals import columns_v1, columns_v2
from sparse_operation_kit.feature_columns.categorical_column import (
    UNBOUNDED,
    categorical_column_with_embedding,
)
from sparse_operation_kit.feature_columns.scopes import current_masks, current_training
from sparse_operation_kit.feature_columns.table_variables import (
    TableSpec,
    check_table,
    create_state,
    making_tables,
)
from sparse_operation_kit.lookup import bags
from sparse_operation_kit.lookup.bags import as_keys
from sparse_operation_kit.lookup.group import DenseLookup, lookup_group
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.row_assignment import assign_rows_of_all_ranks

# The initial value of rows in tables for adaptive embedding, which no trained row has.
INITIAL_VALUE = float(np.finfo(np.float32).min)


def adaptive_rows(
    shared: Any,
    table: EmbeddingVariable,
    keys: tf.Tensor,
    shared_ids: tf.Tensor,
    mask: tf.Tensor,
    training: bool | tf.Tensor = True,
    partition_strategy: str = "mod",
) -> tf.Tensor:
    """Returns the row of each id.

    Args:
      shared: An ordinary variable, which may be partitioned: the rows that ids share.
      table: The embedding variable of ids with rows of their own, whose initial value is a constant.
      keys: The ids' keys in the table, [n].
      shared_ids: The ids' rows in `shared`, [n].
      mask: bool [n]: whether the id has a row of its own.
      training: As in lookups of tables.
      partition_strategy: "mod" or "div": how rows are spread over the parts of `shared`.

    Returns:
      [n, dim].
    """
    of_shared = tf.compat.v1.nn.embedding_lookup(
        bags.parts(shared), shared_ids, partition_strategy=partition_strategy
    )
    places = _places(mask)
    own = look_up_with_initial_rows(
        table,
        tf.boolean_mask(keys, mask),
        tf.gather(of_shared, places[1]),
        constant_initial_value(table),
        training,
    )
    rows = tf.dynamic_stitch(places, [tf.gather(of_shared, places[0]), own])
    rows.set_shape([None, table.dim])
    return rows


def _places(mask: tf.Tensor) -> list[tf.Tensor]:
    """Returns where a mask is false, and where it is true.

    With a constant mask, TensorFlow 2.15 takes the outputs of a `dynamic_partition` to have one length.
    """
    return [tf.cast(tf.where(one)[:, 0], tf.int32) for one in (tf.logical_not(mask), mask)]


def constant_initial_value(table: EmbeddingVariable) -> float:
    """Returns the initial value of a table.

    Raises:
      ValueError: The table's initial values are not one constant, or a key that is not admitted reads as it.
    """
    value = table.constant_initial_value
    if value is None:
        raise ValueError(
            f"Embedding variable '{table.m_var_name}': rows whose initial values a lookup brings need a "
            "table with a constant initializer, by which new rows are recognized"
        )
    return value


def adaptive_embedding_lookup_sparse(
    hash_params: Any,
    ev_params: Any,
    sp_ids: tf.SparseTensor,
    hash_ev_ids: tf.Tensor,
    sp_weights: None = None,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: None = None,
    bucket_size: int | None = None,
    adaptive_mask_tensor: Any = None,
    blocknums: None = None,
) -> tf.Tensor:
    """Looks up ids; a mask says which of them have rows of their own.

    Args:
      hash_params: An ordinary variable, which may be partitioned. Ids with a mask of 0 are row numbers of it.
      ev_params: An embedding variable with a constant initializer, for the other ids.
      sp_ids: Ids `[batch, any]`.
      hash_ev_ids: For each id with a mask of 1, in their order, the row of `hash_params` from which its own
        row starts.
      sp_weights: Must be None, as in DeepRec.
      partition_strategy: "mod" or "div": how rows are spread over the parts of `hash_params`.
      name: The name scope of the ops.
      combiner: "sum", "mean", which None means, or "sqrtn".
      max_norm: Must be None.
      bucket_size: Has no effect.
      adaptive_mask_tensor: An int tensor with 0 or 1 for each id.
      blocknums: Must be None.

    Returns:
      `[batch, dim]`, zeros for rows without ids.

    Raises:
      TypeError: An argument has the wrong type.
      ValueError: The mask is missing, or an argument that must be None is not.
    """
    del bucket_size
    function = "adaptive_embedding_lookup_sparse"
    for argument, value in (("sp_weights", sp_weights), ("max_norm", max_norm), ("blocknums", blocknums)):
        if value is not None:
            raise ValueError(f"{function}: {argument} must be None, not {value!r}")
    if adaptive_mask_tensor is None:
        raise ValueError(f"{function}: adaptive_mask_tensor must be given")
    if not isinstance(sp_ids, tf.SparseTensor):
        raise TypeError(f"{function}: sp_ids must be a SparseTensor, not {sp_ids!r}")
    (table,) = bags.parts(ev_params)
    if not isinstance(table, EmbeddingVariable):
        raise TypeError(f"{function}: ev_params must be an embedding variable, not {ev_params!r}")
    with tf.name_scope(name or function):
        mask = tf.not_equal(adaptive_mask_tensor, 0)
        places = _places(mask)
        shared_ids = tf.dynamic_stitch(
            places, [tf.gather(sp_ids.values, places[0]), tf.cast(hash_ev_ids, sp_ids.dtype)]
        )
        keys = as_keys(sp_ids.values, table, function)
        rows = adaptive_rows(
            hash_params, table, keys, shared_ids, mask, partition_strategy=partition_strategy
        )
        return bags.combined(rows, sp_ids, None, combiner or "mean")


# The names of the variable whose rows ids share, and of that of ids with own rows.
_SHARED = "shared_embedding_weights"
_OWN = "embedding_weights"


class AdaptiveCategoricalColumn(
    columns_v2.CategoricalColumn,
    columns_v1._CategoricalColumn,
    collections.namedtuple("AdaptiveCategoricalColumn", ("keys", "hash_bucket_size")),
):
    """See `categorical_column_with_adaptive_embedding`. `keys` is the column of the ids with own rows."""

    def __hash__(self) -> int:
        return hash((self.keys, self.hash_bucket_size))

    _is_v2_column = True

    @property
    def name(self) -> str:
        """The feature's key."""
        return self.keys.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """The spec for `tf.io.parse_example`."""
        return self.keys.parse_example_spec

    _parse_example_spec = parse_example_spec

    @property
    def num_buckets(self) -> int:
        """A number larger than any table."""
        return UNBOUNDED

    _num_buckets = num_buckets

    @property
    def parents(self) -> list[str]:
        """The key of the feature that the column reads."""
        return self.keys.parents

    def get_config(self) -> dict[str, Any]:
        """Raises an error: the column has no config."""
        raise NotImplementedError(f"Column '{self.name}': an adaptive column has no config")

    def transform_feature(self, transformation_cache: Any, state_manager: Any) -> tf.SparseTensor:
        """Returns the ids' keys."""
        return self.keys.transform_feature(transformation_cache, state_manager)

    def _transform_feature(self, inputs: Any) -> tf.SparseTensor:
        return self.keys._transform_feature(inputs)

    def get_sparse_tensors(self, transformation_cache: Any, state_manager: Any) -> Any:
        """Raises an error: only an embedding column reads this column."""
        raise ValueError(
            f"Column '{self.name}': an adaptive column is read by an embedding_column, in "
            "tf.compat.v1.feature_column.input_layer or DenseFeatures"
        )

    def _get_sparse_tensors(self, inputs: Any, weight_collections: Any = None, trainable: Any = None) -> Any:
        del inputs, weight_collections, trainable
        return self.get_sparse_tensors(None, None)

    def ids(self, get: Callable[[Any], Any]) -> tuple[tf.SparseTensor, tf.Tensor]:
        """Returns the ids' keys, and the rows that the ids share; `get` has the tensor of a column or key."""
        sparse = columns_v2._to_sparse_input_and_drop_ignore_values(get(self.name))
        texts = sparse.values if sparse.dtype == tf.string else tf.strings.as_string(sparse.values)
        return get(self), tf.strings.to_hash_bucket_fast(texts, self.hash_bucket_size)


def categorical_column_with_adaptive_embedding(
    key: str,
    hash_bucket_size: int,
    dtype: tf.DType = tf.string,
    partition_num: int | None = None,
    ev_option: Any = None,
) -> AdaptiveCategoricalColumn:
    """Creates a column whose rare ids share rows, while its frequent ids have rows of their own.

    Pass it to `tf.feature_column.embedding_column`, and give `tf.compat.v1.feature_column.input_layer`, or
    the call of a `tf.keras.layers.DenseFeatures`, `adaptive_mask_tensors={key: mask}`: an int tensor with 0
    or 1 for each sample. The ids of samples with 1 have rows in an embedding variable; those of the others
    share the rows of an ordinary variable of `hash_bucket_size` rows, by their hashes. A new row of the
    former starts with the shared row.

    Args:
      key: The feature's name.
      hash_bucket_size: The number of rows that ids share.
      dtype: As in `categorical_column_with_embedding`, as are the other arguments. The initial values of both
        variables are the embedding column's.

    Raises:
      TypeError, ValueError: As `categorical_column_with_embedding`, or `hash_bucket_size` is below 1.
    """
    column = categorical_column_with_embedding(key, dtype, partition_num, ev_option)
    return AdaptiveCategoricalColumn(
        column, whole_number(hash_bucket_size, f"Column '{key}': hash_bucket_size")
    )


class AdaptiveEmbeddingColumn(columns_v2.EmbeddingColumn):
    """The embedding column over an `AdaptiveCategoricalColumn`."""

    def _get_dense_tensor(
        self, inputs: Any, weight_collections: Any = None, trainable: Any = None
    ) -> tf.Tensor:
        shared = tf.compat.v1.get_variable(
            _SHARED,
            [self.categorical_column.hash_bucket_size, self.dimension],
            initializer=self.initializer,
            trainable=self.trainable and trainable is not False,
            collections=weight_collections,
        )
        with making_tables(self._spec):
            table = tf.compat.v1.get_variable(
                _OWN,
                shape=(UNBOUNDED, self.dimension),
                initializer=self._spec.initializer,
                trainable=self.trainable and trainable is not False,
                collections=weight_collections,
            )
        return self._looked_up(inputs.get, shared, check_table(self._spec, table))

    def get_dense_tensor(self, transformation_cache: Any, state_manager: Any) -> tf.Tensor:
        """Returns the outputs [batch, dimension] in a `DenseFeatures`.

        Raises:
          ValueError: There is no mask of the column's feature.
        """
        get = functools.partial(transformation_cache.get, state_manager=state_manager)
        shared = state_manager.get_variable(self, _SHARED)
        return self._looked_up(get, shared, check_table(self._spec, state_manager.get_variable(self, _OWN)))

    def create_state(self, state_manager: Any) -> None:
        """Creates both variables for a `DenseFeatures`."""
        shape = (self.categorical_column.hash_bucket_size, self.dimension)
        create_state(state_manager, self, _SHARED, shape, self.initializer)
        with making_tables(self._spec):
            create_state(state_manager, self, _OWN, (UNBOUNDED, self.dimension), self._spec.initializer)

    def _looked_up(self, get: Callable[[Any], Any], shared: Any, table: EmbeddingVariable) -> tf.Tensor:
        keys, shared_ids = self.categorical_column.ids(get)
        rows = adaptive_rows(
            shared,
            table,
            keys.values,
            shared_ids,
            self._mask(keys),
            current_training(),
            partition_strategy="div",
        )
        matrix, _ = bags.as_matrices(keys, None)
        return bags.with_leading_dimensions(bags.combined(rows, matrix, None, self.combiner), keys)

    @property
    def _spec(self) -> TableSpec:
        initial = tf.compat.v1.constant_initializer(INITIAL_VALUE)
        options = self.categorical_column.keys.ev_option
        return TableSpec(self.name, self.dimension, initial, options, initializer_first=True)

    def _mask(self, keys: tf.SparseTensor) -> tf.Tensor:
        name = self.categorical_column.name
        masks = current_masks()
        if masks is None or name not in masks:
            raise ValueError(
                f"Column '{name}': input_layer, or the call of DenseFeatures, needs "
                f"adaptive_mask_tensors={{'{name}': mask}}, with 0 or 1 for each sample"
            )
        mask = tf.reshape(tf.convert_to_tensor(masks[name]), [-1])
        if not (mask.dtype.is_integer or mask.dtype.is_bool):
            raise ValueError(f"Column '{name}': the mask is {mask.dtype.name}, not of integers")
        return tf.gather(tf.not_equal(tf.cast(mask, tf.int32), 0), keys.indices[:, 0])


def look_up_with_initial_rows(
    variable: EmbeddingVariable,
    keys: tf.Tensor,
    initial_rows: tf.Tensor,
    initial_value: float,
    training: bool | tf.Tensor = True,
) -> tf.Tensor:
    """Looks up rows; a key without a row gets its row of `initial_rows`.

    Over ranks two small allgathers bring new rows to their owners.

    Args:
      variable: An embedding variable.
      keys: [n], of its key_dtype. Equal keys have equal initial rows.
      initial_rows: [n, dim]. They get no gradients.
      initial_value: The variable's constant initial value. A row is new if all its columns equal it.
      training: As in `lookup_group`. If false, nothing is stored.

    Returns:
      [n, dim].
    """
    rows = lookup_group([DenseLookup(variable, keys)], training)[0]
    initial_rows = tf.stop_gradient(initial_rows)
    is_new = tf.reduce_all(tf.equal(rows, tf.constant(initial_value, tf.float32)), axis=1)
    to_store = tf.logical_and(is_new, training)
    stored = assign_rows_of_all_ranks(
        variable,
        tf.boolean_mask(keys, to_store),
        tf.boolean_mask(initial_rows, to_store),
        f"initial rows of {variable.m_var_name}",
    )

    # The gradient of a new row is that of the table's row. Updates of rows must come after their initial
    # values, also where the gradient does not depend on the rows.
    @tf.custom_gradient
    def with_initial_rows(of_table: tf.Tensor) -> tuple:
        def gradient(of_result: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([stored]):
                return tf.identity(of_result)

        with tf.control_dependencies([stored]):
            return tf.raw_ops.Select(condition=is_new, x=initial_rows, y=of_table), gradient

    return with_initial_rows(rows)
