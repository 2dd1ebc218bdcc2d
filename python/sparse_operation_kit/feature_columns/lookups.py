"""What columns want looked up, and the lookups of those that belong together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.lookup.group import SparseLookup, lookup_group


@dataclasses.dataclass(frozen=True)
class LookupRequest:
    """A column's lookup.

    Attributes:
      variable: The embedding variable.
      ids: int64 keys [d0, ..., dn]; the last dimension is combined.
      weights: As many floats, in the order of the ids, or None.
      combiner: "sum", "mean" or "sqrtn".
      prune_weights: Whether ids whose weight is not positive are left out of a mean and of a sqrtn, as
        `tf.nn.safe_embedding_lookup_sparse` does it.
    """

    variable: EmbeddingVariable
    ids: tf.SparseTensor
    weights: tf.SparseTensor | None
    combiner: str
    prune_weights: bool = True


def look_up(
    requests: Sequence[LookupRequest], training: bool | tf.Tensor = True, name: str | None = None
) -> list[tf.Tensor]:
    """Looks up what columns of one group want, in one op.

    Returns:
      For each request its rows [d0, ..., dn-1, dim], zeros where there is no id.

    Raises:
      ValueError: An unknown combiner.
    """
    rows = lookup_group([_lookup(request) for request in requests], training, name)
    return [_with_leading_dimensions(request, row) for request, row in zip(requests, rows, strict=True)]


def _lookup(request: LookupRequest) -> SparseLookup:
    ids = _as_matrix(request.ids)
    if request.weights is None:
        return SparseLookup(request.variable, ids, request.combiner)
    weights = tf.cast(request.weights.values, tf.float32)
    if request.prune_weights and request.combiner != "sum":
        with tf.name_scope("prune_weights"):
            kept = tf.reshape(tf.where(weights > 0), [-1])
            indices, keys = tf.gather(ids.indices, kept), tf.gather(ids.values, kept)
            ids, weights = tf.SparseTensor(indices, keys, ids.dense_shape), tf.gather(weights, kept)
    return SparseLookup(request.variable, ids, request.combiner, weights)


def _as_matrix(ids: tf.SparseTensor) -> tf.SparseTensor:
    """Ids with all dimensions but the last made one."""
    if ids.shape.rank == 2:
        return ids
    shape = tf.cast(ids.dense_shape, tf.int64)
    return tf.sparse.reshape(ids, tf.stack([tf.reduce_prod(shape[:-1]), shape[-1]]))


def _with_leading_dimensions(request: LookupRequest, rows: tf.Tensor) -> tf.Tensor:
    if request.ids.shape.rank == 2:
        return rows
    shape = tf.concat([request.ids.dense_shape[:-1], [request.variable.dim]], axis=0)
    result = tf.reshape(rows, shape)
    if request.ids.shape.rank is not None:
        result.set_shape(request.ids.shape[:-1].concatenate([request.variable.dim]))
    return result
