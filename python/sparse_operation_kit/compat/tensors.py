"""Methods of tensors, variables and iterators."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.version import VERSION


def reference(value: Any) -> Hashable:
    """A key of dicts and sets that stands for a tensor or a variable: `value.ref()`, or its older name."""
    return value.ref() if hasattr(value, "ref") else value.experimental_ref()


def next_as_optional(iterator: Any) -> Any:
    """The iterator's next element, or none at the end; a `tf.experimental.Optional`."""
    if hasattr(iterator, "get_next_as_optional"):
        return iterator.get_next_as_optional()
    return tf.data.experimental.get_next_as_optional(iterator)


def types_of_generator(dtypes: Sequence[tf.DType], shapes: Sequence[tf.TensorShape]) -> dict[str, Any]:
    """The arguments of `tf.data.Dataset.from_generator` for tuples of tensors of these dtypes and shapes."""
    if VERSION < (2, 4):
        return {"output_types": tuple(dtypes), "output_shapes": tuple(shapes)}
    return {"output_signature": tuple(tf.TensorSpec(shape, dtype) for shape, dtype in zip(shapes, dtypes))}


# The dtype of segments that sparse segment sums take in every version.
SEGMENT_DTYPE = tf.int32 if VERSION < (2, 0) else tf.int64


def for_sparse_lookups(bags: Any) -> Any:
    """A SparseTensor or RaggedTensor as `tf.nn.embedding_lookup_sparse` takes it: sparse in 1.15."""
    return bags.to_sparse() if VERSION < (2, 0) and isinstance(bags, tf.RaggedTensor) else bags


def with_values(ids: Any, values: tf.Tensor) -> Any:
    """The SparseTensor, RaggedTensor or tf.IndexedSlices `ids` with other values."""
    if isinstance(ids, tf.SparseTensor):
        return tf.SparseTensor(ids.indices, values, ids.dense_shape)
    if isinstance(ids, tf.IndexedSlices):
        return tf.IndexedSlices(values, ids.indices, ids.dense_shape)
    return ids.with_values(values)


def ascending_order(values: tf.Tensor) -> tf.Tensor:
    """Returns the order that sorts a vector of integers, stably.

    `tf.argsort` of 1.15 sorts by negated values. The smallest integer cannot be negated and would come last.
    """
    return tf.argsort(tf.bitwise.invert(values), direction="DESCENDING", stable=True)


def fit_slice_of_slot(slot: tf.Variable) -> None:
    """Makes the slice that a Saver writes of a slot fit the slot, if its variable is partitioned.

    1.15 gives each slot the slice of its variable, and a Saver cannot be built if the slot has fewer
    dimensions. Newer versions give it the slice of those dimensions, and a scalar none.
    """
    info = slot._save_slice_info
    rank = slot.shape.rank
    if info is not None and rank < len(info.full_shape):
        dimensions = (info.full_shape[:rank], info.var_offset[:rank], info.var_shape[:rank])
        slot._set_save_slice_info(type(info)(info.full_name, *dimensions) if rank else None)


def embedding_lookup_sparse(
    params: Sequence[Any], ids: Any, weights: Any, partition_strategy: str, combiner: str
) -> tf.Tensor:
    """Calls `tf.compat.v1.nn.embedding_lookup_sparse`; 1.15 gives the results of newer versions.

    The function of 1.15 takes no RaggedTensors. It divides by the sum of a bag's weights even if the sum is
    zero, so bags without ids would be NaN.
    """
    ids, weights = for_sparse_lookups(ids), for_sparse_lookups(weights)
    if weights is None or combiner == "sum" or VERSION >= (2, 0):
        return tf.compat.v1.nn.embedding_lookup_sparse(
            params, ids, weights, partition_strategy=partition_strategy, combiner=combiner
        )
    sums = tf.compat.v1.nn.embedding_lookup_sparse(
        params, ids, weights, partition_strategy=partition_strategy, combiner="sum"
    )
    factors = tf.cast(weights.values, sums.dtype)
    if combiner == "sqrtn":
        factors = tf.square(factors)
    divisors = tf.math.segment_sum(factors, ids.indices[:, 0])
    if combiner == "sqrtn":
        divisors = tf.sqrt(divisors)
    return tf.math.divide_no_nan(sums, divisors[:, tf.newaxis])
