"""Batches of columns, as DeepRec names them: fields, values, and how values become sparse tensors."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf


class Field:
    """A column of a `DataFrame`.

    Attributes:
      name: the column's name.
      dtype: the `tf.DType` of its values; None if it is not known yet.
      ragged_rank: how many lists are nested in each other in a row: 0 for one value in each row. None if it
        is not known yet.
      shape: the shape of a row's values if all rows have the same; None otherwise.
    """

    def __init__(
        self,
        name: str,
        dtype: Any = None,
        ragged_rank: int | None = None,
        shape: Sequence[int] | tf.TensorShape | None = None,
    ) -> None:
        """Makes a field.

        Raises:
          ValueError: `ragged_rank` is negative; a part of `shape` is unknown; or there are a shape and nested
            lists.
        """
        self.name = name
        self.dtype = None if dtype is None else tf.dtypes.as_dtype(dtype)
        self.ragged_rank = ragged_rank
        self.shape = tf.TensorShape(shape) if shape else None
        if ragged_rank is not None and ragged_rank < 0:
            raise ValueError(f"Field {name}: ragged_rank must not be negative, but is {ragged_rank}")
        if self.shape is not None and not self.shape.is_fully_defined():
            raise ValueError(f"Field {name}: all of the shape must be known, but it is {self.shape}")
        if self.shape is not None and (ragged_rank or 0) > 1:
            raise ValueError(f"Field {name} has a shape, {self.shape}, and {ragged_rank} nested lists")

    @property
    def incomplete(self) -> bool:
        """Whether the dtype or the ragged rank is not known yet."""
        return self.dtype is None or self.ragged_rank is None

    def __repr__(self) -> str:
        dtype = "unknown" if self.dtype is None else self.dtype.name
        return f"Field({self.name!r}, {dtype}, ragged_rank={self.ragged_rank}, shape={self.shape})"


class Value(collections.namedtuple("DataFrameValue", ["values", "nested_row_splits"])):
    """A column of lists: their values one after the other, and where each list begins.

    Attributes:
      values: the values of all lists.
      nested_row_splits: a tuple of int32 vectors, outermost lists first, as a `tf.RaggedTensor` has them.
    """

    def __new__(cls, values: Any, nested_row_splits: Sequence[Any] | None = None) -> Value:
        """Makes a value; without splits, one of a column that has no lists."""
        return super().__new__(cls, values, tuple(nested_row_splits or ()))

    def to_ragged(self) -> tf.RaggedTensor | tf.Tensor:
        """Returns the column as a ragged tensor, which the lookups of this package take."""
        if not self.nested_row_splits:
            return self.values
        return tf.RaggedTensor.from_nested_row_splits(self.values, self.nested_row_splits, validate=False)

    def to_sparse(self, name: str | None = None) -> tf.SparseTensor | tf.Tensor:
        """Returns the column as a sparse tensor; as a dense one if it has no lists or all have one shape."""
        if not self.nested_row_splits:
            return self.values
        if len(self.nested_row_splits) == 1 and self.values.shape.rank != 1:
            return self.values
        return self.to_ragged().to_sparse(name=name)


class DataFrame:
    """Names for what a batch of columns consists of."""

    Field = Field
    Value = Value

    @classmethod
    def to_sparse(cls, features: Any) -> Any:
        """Makes sparse tensors of the lists in a batch; other columns stay dense.

        Args:
          features: a `Value`, tensor, ragged tensor, or a dictionary of these.

        Raises:
          ValueError: `features` is something else.
        """
        return _map(features, lambda value: value.to_sparse(), lambda ragged: ragged.to_sparse())

    @classmethod
    def unbatch_and_to_sparse(cls, features: Any) -> Any:
        """Like `to_sparse`, for batches of one row: the results do not have the dimension of the batch."""

        def only_row(sparse: Any) -> Any:
            if not isinstance(sparse, tf.SparseTensor):
                return sparse[0]
            return tf.sparse.reshape(sparse, sparse.dense_shape[1:])

        return _map(
            features, lambda value: only_row(value.to_sparse()), lambda ragged: only_row(ragged.to_sparse())
        )


def to_sparse(num_parallel_calls: int | None = None) -> Callable[[Any], Any]:
    """Returns a transformation for `tf.data.Dataset.apply` that calls `DataFrame.to_sparse`."""
    return _mapped(DataFrame.to_sparse, num_parallel_calls)


def unbatch_and_to_sparse(num_parallel_calls: int | None = None) -> Callable[[Any], Any]:
    """Returns a transformation for `tf.data.Dataset.apply` that calls `DataFrame.unbatch_and_to_sparse`."""
    return _mapped(DataFrame.unbatch_and_to_sparse, num_parallel_calls)


def _mapped(function: Callable[[Any], Any], num_parallel_calls: int | None) -> Callable[[Any], Any]:
    function = tf.autograph.experimental.do_not_convert(function)
    return lambda dataset: dataset.map(function, num_parallel_calls=num_parallel_calls)


def _map(features: Any, of_value: Callable[[Value], Any], of_ragged: Callable[[Any], Any]) -> Any:
    if isinstance(features, Mapping):
        return {name: _map(feature, of_value, of_ragged) for name, feature in features.items()}
    if isinstance(features, Value):
        return of_value(features)
    if isinstance(features, tf.RaggedTensor):
        return of_ragged(features)
    if isinstance(features, tf.Tensor):
        return features
    raise ValueError(f"{features!r} is not a value of a DataFrame, a tensor, or a dictionary of these")
