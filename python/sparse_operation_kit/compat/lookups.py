"""Lookups in ordinary variables, by TensorFlow's own ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.tensors import for_sparse_lookups
from sparse_operation_kit.compat.version import VERSION


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
