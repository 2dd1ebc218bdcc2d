"""TensorFlow's embedding columns, over an embedding variable.

TensorFlow's functions create these columns over this library's categorical columns. Each column knows the
group of the scope that it was created in, and can describe its lookup as a `LookupRequest`, so that a group's
lookups can run as one op. A column can also be looked up alone.
"""

from __future__ import annotations

import abc
import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat.internals import (
    EmbeddingColumn,
    columns_v1,
    columns_v2,
    register_feature_column,
)
from sparse_operation_kit.feature_columns import scopes
from sparse_operation_kit.feature_columns.categorical_column import UNBOUNDED, embedding_root
from sparse_operation_kit.feature_columns.lookups import LookupRequest, look_up_alone
from sparse_operation_kit.feature_columns.scopes import Group
from sparse_operation_kit.feature_columns.table_variables import TableSpec, check_table, making_tables
from sparse_operation_kit.newer_python import set_within
from sparse_operation_kit.saver.warm_start import init_from_checkpoint

_rows_of_columns: contextvars.ContextVar[dict[Any, tf.Tensor] | None] = contextvars.ContextVar(
    "rows_of_columns", default=None
)


def looked_up_before(
    columns: Sequence[TableColumn], rows: Sequence[tf.Tensor]
) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which `get_dense_tensor` of the columns returns these rows."""
    # Columns are compared by value, because Keras copies some of them.
    return set_within(_rows_of_columns, dict(zip(columns, rows)))


def in_groups(columns: Sequence[Any]) -> bool:
    """Returns whether one of the columns belongs to a group."""
    return any(isinstance(column, TableColumn) and column.group is not None for column in columns)


class TableColumn(abc.ABC):
    """The common base class of the columns below.

    Attributes:
      group: The group of the scope that the column was created in, None outside scopes.
    """

    group: Group | None = None
    # Attributes of TensorFlow's columns.
    name: str
    combiner: str
    dimension: int
    initializer: Any
    categorical_column: Any

    @abc.abstractmethod
    def request(self, inputs: Any, weight_collections: Any, trainable: bool) -> LookupRequest:
        """Returns the column's lookup in an `input_layer`, given the arguments of that function."""

    @abc.abstractmethod
    def state_request(self, transformation_cache: Any, state_manager: Any) -> LookupRequest:
        """Returns the column's lookup in a `DenseFeatures`."""

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

    def get_sequence_dense_tensor(self, transformation_cache: Any, state_manager: Any) -> Any:
        """Returns the rows [batch, steps, dimension] of a sequence column's keys, and the lengths [batch].

        Raises:
          ValueError: The column is not over a sequence column.
        """
        self._check_is_sequence()
        return self._sequences(self.state_request(transformation_cache, state_manager))

    def _get_sequence_dense_tensor(
        self, inputs: Any, weight_collections: Any = None, trainable: Any = None
    ) -> Any:
        """The same in a `tf.contrib.feature_column.sequence_input_layer`, which version 1.15 has."""
        self._check_is_sequence()
        return self._sequences(self.request(inputs, weight_collections, trainable))

    def _check_is_sequence(self) -> None:
        if not isinstance(self.categorical_column, columns_v2.SequenceCategoricalColumn):
            raise ValueError(
                f"Column '{self.name}' is not over a sequence column: use "
                "sequence_categorical_column_with_embedding"
            )

    def _sequences(self, request: LookupRequest) -> Any:
        lengths = columns_v2.fc_utils.sequence_length_from_sparse_tensor(request.ids)
        return columns_v2.SequenceDenseColumn.TensorSequenceLengthPair(
            dense_tensor=look_up_alone(request, self._op_name), sequence_length=lengths
        )

    @property
    def _spec(self) -> TableSpec:
        root = embedding_root(self.categorical_column)
        return TableSpec(self.name, self.dimension, self.initializer, root.ev_option)

    @property
    def _op_name(self) -> str:
        return Group(f"{self.name}_weights").op_name

    def _request(self, variable: Any, tensors: Any) -> LookupRequest:
        rank = tensors.id_tensor.shape.rank
        # Version 1.15 always uses the safe lookup.
        is_safe = getattr(self, "use_safe_embedding_lookup", True)
        prune = is_safe or rank is None or rank > 2
        ids, weights = tensors.id_tensor, tensors.weight_tensor
        return LookupRequest(variable, ids, weights, self.combiner, self.group, prune)


@register_feature_column
class TableEmbeddingColumn(TableColumn, EmbeddingColumn):
    """The column that `tf.feature_column.embedding_column` creates."""

    def get_config(self) -> dict[str, Any]:
        """Returns the column's config for `from_config`, which can be stored as JSON."""
        group = None if self.group is None else dataclasses.asdict(self.group)
        return {**super().get_config(), "group": group}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict | None = None, columns_by_name: dict | None = None
    ) -> TableEmbeddingColumn:
        """Creates the column from its config, in its group."""
        fields = dict(config)
        group = fields.pop("group", None)
        column = super().from_config(fields, custom_objects, columns_by_name)
        column.group = None if group is None else Group(**group)
        return column

    def create_state(self, state_manager: Any) -> None:
        """Creates the embedding variable."""
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


class TableSharedEmbeddingColumnV1(TableColumn, columns_v1._SharedEmbeddingColumn):
    """The column that `tf.compat.v1.feature_column.shared_embedding_columns` creates."""

    def request(self, inputs: Any, weight_collections: Any, trainable: bool) -> LookupRequest:
        """See `TableColumn`."""
        # Columns that share the variable share a variable scope, so their ops need a name scope each.
        with tf.name_scope(Group(self.name).op_name):
            tensors = self.categorical_column._get_sparse_tensors(inputs, weight_collections, trainable)
        shared = tf.compat.v1.get_collection_ref(self.shared_embedding_collection_name)
        if len(shared) > 1:
            raise ValueError(
                f"Column '{self.name}': collection '{self.shared_embedding_collection_name}' must contain "
                f"only the shared embedding variable, but contains {shared}"
            )
        if not shared:
            trainable = self.trainable and trainable is not False
            shared.append(_get_table(self._spec, weight_collections, trainable))
        variable = check_table(self._spec, shared[0])
        return self._request(_warm(variable, self.ckpt_to_load_from, self.tensor_name_in_ckpt), tensors)


class TableSharedEmbeddingColumn(TableColumn, columns_v2.SharedEmbeddingColumn):
    """The column that `tf.feature_column.shared_embeddings` creates."""

    @property
    def group(self) -> Group | None:
        """See `TableColumn`. Stored in the creator, because Keras copies columns with trackable objects."""
        return getattr(self.shared_embedding_column_creator, "_column_group", None)

    @group.setter
    def group(self, group: Group | None) -> None:
        creator = self.shared_embedding_column_creator
        if not hasattr(creator, "_column_group"):
            creator._column_group = group

    def request(self, inputs: Any, weight_collections: Any, trainable: bool) -> LookupRequest:
        """Raises an error, as TensorFlow's columns of this kind do."""
        return columns_v2.SharedEmbeddingColumn._get_dense_tensor(self, inputs, weight_collections, trainable)

    def state_request(self, transformation_cache: Any, state_manager: Any) -> LookupRequest:
        """See `TableColumn`."""
        tensors = self.categorical_column.get_sparse_tensors(transformation_cache, state_manager)
        return self._request(check_table(self._spec, self._table()), tensors)

    def _table(self) -> Any:
        """Returns the creator's variable for the default graph, creating it at the first call."""
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
    """Returns the column's variable in the current variable scope, with the name that TensorFlow uses."""
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
    """Makes the variable's initializer load the checkpoint that the column names, if any; returns it."""
    if checkpoint is not None:
        init_from_checkpoint(checkpoint, {name: variable})
    return variable


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


@replacements.wraps(f"{_COLUMNS_V2}.IndicatorColumn.__new__")
def _refuse_indicators(
    original: Callable, cls: type, categorical_column: Any, *args: Any, **kwargs: Any
) -> Any:
    if embedding_root(categorical_column) is not None:
        raise ValueError(
            f"Column '{categorical_column.name}': an indicator_column needs a number of buckets, which "
            "categorical_column_with_embedding does not have; use an embedding_column"
        )
    return original(cls, categorical_column, *args, **kwargs)


for _module, _theirs, _ours in (
    (_COLUMNS_V2, columns_v2.EmbeddingColumn, TableEmbeddingColumn),
    (_COLUMNS_V2, columns_v2.SharedEmbeddingColumn, TableSharedEmbeddingColumn),
    (_COLUMNS_V1, columns_v1._SharedEmbeddingColumn, TableSharedEmbeddingColumnV1),
):
    replacements.implements(f"{_module}.{_theirs.__name__}.__new__")(_making(_theirs, _ours))
