"""TensorFlow's embedding columns, over an embedding variable.

`column_constructors` has TensorFlow's functions construct these where the categorical column is one of ours.
Each knows the group of the scope that it was made in, and can say what it wants looked up, so that a group's
lookups become one; by itself it looks up like any column.
"""

from __future__ import annotations

import abc
import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column as columns_v1
from tensorflow.python.feature_column import feature_column_v2 as columns_v2
from tensorflow.python.feature_column import serialization

from sparse_operation_kit.feature_columns.categorical_column import UNBOUNDED, embedding_root
from sparse_operation_kit.feature_columns.lookups import LookupRequest, look_up_alone
from sparse_operation_kit.feature_columns.scopes import Group
from sparse_operation_kit.feature_columns.table_variables import TableSpec, check_table, making_tables
from sparse_operation_kit.saver.warm_start import init_from_checkpoint

_rows_of_columns: contextvars.ContextVar[dict[Any, tf.Tensor] | None] = contextvars.ContextVar(
    "rows_of_columns", default=None
)


@contextlib.contextmanager
def looked_up_before(columns: Sequence[TableColumn], rows: Sequence[tf.Tensor]) -> Iterator[None]:
    """Inside it, `get_dense_tensor` of the columns returns these rows."""
    # By the columns' values: Keras remakes some columns, whose identities are then others.
    token = _rows_of_columns.set(dict(zip(columns, rows, strict=True)))
    try:
        yield
    finally:
        _rows_of_columns.reset(token)


def in_groups(columns: Sequence[Any]) -> bool:
    """Whether there is a column of a group among the columns."""
    return any(isinstance(column, TableColumn) and column.group is not None for column in columns)


class TableColumn(abc.ABC):
    """What the columns below have in common.

    Attributes:
      group: The scope's that the column was made in, None outside of scopes.
    """

    group: Group | None = None
    # TensorFlow's columns have these.
    name: str
    combiner: str
    use_safe_embedding_lookup: bool

    @abc.abstractmethod
    def request(self, inputs: Any, weight_collections: Any, trainable: bool) -> LookupRequest:
        """What the column wants looked up in an `input_layer`, whose arguments these are."""

    @abc.abstractmethod
    def state_request(self, transformation_cache: Any, state_manager: Any) -> LookupRequest:
        """What the column wants looked up in a `DenseFeatures`."""

    def _get_dense_tensor(
        self, inputs: Any, weight_collections: Any = None, trainable: Any = None
    ) -> tf.Tensor:
        return look_up_alone(self.request(inputs, weight_collections, trainable), self._op_name)

    def get_dense_tensor(self, transformation_cache: Any, state_manager: Any) -> tf.Tensor:
        """Returns the column's rows [batch, dimension]."""
        before = _rows_of_columns.get()
        if before is not None and self in before:
            return before[self]
        return look_up_alone(self.state_request(transformation_cache, state_manager), self._op_name)

    @property
    def _op_name(self) -> str:
        return Group(f"{self.name}_weights").op_name

    def _request(self, variable: Any, tensors: Any) -> LookupRequest:
        rank = tensors.id_tensor.shape.rank
        prune = self.use_safe_embedding_lookup or rank is None or rank > 2
        ids, weights = tensors.id_tensor, tensors.weight_tensor
        return LookupRequest(variable, ids, weights, self.combiner, self.group, prune)


@serialization.register_feature_column
class TableEmbeddingColumn(TableColumn, columns_v2.EmbeddingColumn):
    """What `tf.feature_column.embedding_column` makes."""

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes the column of; JSON holds it."""
        group = None if self.group is None else dataclasses.asdict(self.group)
        return {**super().get_config(), "group": group}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict | None = None, columns_by_name: dict | None = None
    ) -> TableEmbeddingColumn:
        """Makes the column of what `get_config` gave, in the group that it was in."""
        fields = dict(config)
        group = fields.pop("group", None)
        column = super().from_config(fields, custom_objects, columns_by_name)
        column.group = None if group is None else Group(**group)
        return column

    def create_state(self, state_manager: Any) -> None:
        """Makes the embedding variable."""
        with making_tables(self._spec):
            super().create_state(state_manager)

    def request(self, inputs: Any, weight_collections: Any, trainable: bool) -> LookupRequest:
        """See `TableColumn`."""
        tensors = self.categorical_column._get_sparse_tensors(inputs, weight_collections, trainable)
        trainable = self.trainable and trainable is not False
        return self._request(self._warm(_get_table(self._spec, weight_collections, trainable)), tensors)

    def state_request(self, transformation_cache: Any, state_manager: Any) -> LookupRequest:
        """See `TableColumn`."""
        tensors = self.categorical_column.get_sparse_tensors(transformation_cache, state_manager)
        variable = check_table(self._spec, state_manager.get_variable(self, name="embedding_weights"))
        return self._request(self._warm(variable), tensors)

    def _warm(self, variable: Any) -> Any:
        return _warm(variable, self.ckpt_to_load_from, self.tensor_name_in_ckpt)

    @property
    def _spec(self) -> TableSpec:
        root = embedding_root(self.categorical_column)
        return TableSpec(self.name, self.dimension, self.initializer, root.ev_option)


class TableSharedEmbeddingColumnV1(TableColumn, columns_v1._SharedEmbeddingColumn):
    """What `tf.compat.v1.feature_column.shared_embedding_columns` makes."""

    def request(self, inputs: Any, weight_collections: Any, trainable: bool) -> LookupRequest:
        """See `TableColumn`."""
        # All columns that share the variable enter a variable scope of its name.
        with tf.name_scope(Group(self.name).op_name):
            tensors = self.categorical_column._get_sparse_tensors(inputs, weight_collections, trainable)
        shared = tf.compat.v1.get_collection_ref(self.shared_embedding_collection_name)
        if len(shared) > 1:
            raise ValueError(
                f"Column '{self.name}': collection '{self.shared_embedding_collection_name}' is to hold the "
                f"shared embedding variable alone, and holds {shared}"
            )
        if not shared:
            trainable = self.trainable and trainable is not False
            shared.append(_get_table(self._spec, weight_collections, trainable))
        variable = check_table(self._spec, shared[0])
        return self._request(_warm(variable, self.ckpt_to_load_from, self.tensor_name_in_ckpt), tensors)

    @property
    def _spec(self) -> TableSpec:
        root = embedding_root(self.categorical_column)
        return TableSpec(self.name, self.dimension, self.initializer, root.ev_option)


class TableSharedEmbeddingColumn(TableColumn, columns_v2.SharedEmbeddingColumn):
    """What `tf.feature_column.shared_embeddings` makes."""

    @property
    def group(self) -> Group | None:
        """See `TableColumn`. The creator holds it, as Keras remakes columns that hold trackable objects."""
        return getattr(self.shared_embedding_column_creator, "_column_group", None)

    @group.setter
    def group(self, group: Group | None) -> None:
        creator = self.shared_embedding_column_creator
        if not hasattr(creator, "_column_group"):
            creator._column_group = group

    def request(self, inputs: Any, weight_collections: Any, trainable: bool) -> LookupRequest:
        """Refuses, as TensorFlow's columns of this kind do."""
        return columns_v2.SharedEmbeddingColumn._get_dense_tensor(self, inputs, weight_collections, trainable)

    def state_request(self, transformation_cache: Any, state_manager: Any) -> LookupRequest:
        """See `TableColumn`."""
        tensors = self.categorical_column.get_sparse_tensors(transformation_cache, state_manager)
        return self._request(check_table(self._spec, self._table()), tensors)

    def _table(self) -> Any:
        """The variable that the creator keeps for the graph, made when it is first asked for."""
        creator = self.shared_embedding_column_creator
        tables = creator._embedding_weights
        graph = tf.compat.v1.get_default_graph()._graph_key
        if graph not in tables:
            variable = _get_table(self._spec, None, creator._trainable, name=creator._name)
            tables[graph] = _warm(variable, creator._ckpt_to_load_from, creator._tensor_name_in_ckpt)
        return tables[graph]

    @property
    def _spec(self) -> TableSpec:
        creator = self.shared_embedding_column_creator
        root = embedding_root(self.categorical_column)
        return TableSpec(self.name, creator.dimension, creator._initializer, root.ev_option)


def _get_table(
    spec: TableSpec, weight_collections: Any, trainable: bool, name: str = "embedding_weights"
) -> Any:
    """The column's variable in the current variable scope, under the name that TensorFlow gives it."""
    with making_tables(spec):
        variable = tf.compat.v1.get_variable(
            name=name,
            shape=(UNBOUNDED, spec.dim),
            dtype=tf.float32,
            initializer=spec.initializer,
            trainable=bool(trainable),
            collections=weight_collections,
        )
    return check_table(spec, variable)


def _warm(variable: Any, checkpoint: str | None, name: Any) -> Any:
    """Has the variable's initializer load what the column names of a checkpoint."""
    if checkpoint is not None:
        init_from_checkpoint(checkpoint, {name: variable})
    return variable
