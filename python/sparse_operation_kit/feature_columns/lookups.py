"""What columns want looked up, and the lookups of those that belong together."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.feature_columns.scopes import Group, current_training
from sparse_operation_kit.lookup.group import SparseLookup, lookup_group


@dataclasses.dataclass(frozen=True)
class LookupRequest:
    """A column's lookup.

    Attributes:
      variable: The embedding variable.
      ids: int64 keys [d0, ..., dn]; the last dimension is combined.
      weights: As many floats, in the order of the ids, or None.
      combiner: "sum", "mean" or "sqrtn".
      group: The column's.
      prune_weights: Whether ids whose weight is not positive are left out of a mean and of a sqrtn, as
        `tf.nn.safe_embedding_lookup_sparse` does it.
    """

    variable: EmbeddingVariable
    ids: tf.SparseTensor
    weights: tf.SparseTensor | None
    combiner: str
    group: Group | None = None
    prune_weights: bool = True


def look_up_alone(request: LookupRequest, name: str | None = None) -> tf.Tensor:
    """Looks up what one column wants.

    Returns:
      Rows [d0, ..., dn-1, dim], zeros where there is no id.

    Raises:
      ValueError: An unknown combiner.
    """
    return _with_leading_dimensions(request, lookup_group([_lookup(request)], current_training(), name)[0])


def outputs_of_columns(wanted: Sequence[tf.Tensor | LookupRequest]) -> list[tf.Tensor]:
    """Looks up what columns want, in one op for each group.

    Args:
      wanted: For each column its output, or what it wants looked up.

    Returns:
      The output of each column, [batch, elements].
    """
    outputs = list(wanted)
    for members in _groups(wanted):
        requests = [wanted[position] for position in members]
        rows = lookup_group(
            [_lookup(request) for request in requests], current_training(), _op_name(requests)
        )
        for position, request, row in zip(members, requests, rows, strict=True):
            outputs[position] = _as_rows_of_the_batch(request, row)
    return outputs


def side_by_side(wanted: Sequence[tf.Tensor | LookupRequest]) -> list[tf.Tensor]:
    """As `outputs_of_columns`, with neighbours of one group in one tensor.

    Returns:
      Tensors that are, next to each other, the outputs of the columns. What a lookup writes is one tensor
      from the start, so nothing is copied where there is one.
    """
    outputs = list(wanted)
    for members in _groups(wanted):
        requests = [wanted[position] for position in members]
        runs = _runs(members, requests)
        rows = lookup_group(
            [_lookup(request) for request in requests],
            current_training(),
            _op_name(requests),
            side_by_side=[len(run) for run in runs],
        )
        for run, row in zip(runs, rows, strict=True):
            outputs[run[0]] = _as_rows_of_the_batch(wanted[run[0]], row)
            outputs[run[0] + 1 : run[-1] + 1] = [None] * (len(run) - 1)
    return [output for output in outputs if output is not None]


def _runs(members: Sequence[int], requests: Sequence[LookupRequest]) -> list[list[int]]:
    """The members that follow each other and give matrices, together; others by themselves."""
    runs: list[list[int]] = []
    joinable = False
    for position, request in zip(members, requests, strict=True):
        is_matrix = request.ids.shape.rank == 2
        if joinable and is_matrix and runs[-1][-1] + 1 == position:
            runs[-1].append(position)
        else:
            runs.append([position])
        joinable = is_matrix
    return runs


def check_batch_sizes(wanted: Sequence[tf.Tensor | LookupRequest], columns: Sequence[Any]) -> None:
    """Refuses columns whose batches are known to have different sizes.

    Raises:
      ValueError: It names two of them.
    """
    known = None
    for item, column in zip(wanted, columns, strict=True):
        shape = item.ids.shape if isinstance(item, LookupRequest) else item.shape
        size = tf.compat.dimension_value(shape[0]) if shape.rank else None
        if size is None:
            continue
        if known is not None and known[1] != size:
            raise ValueError(
                f"Columns have different batch sizes: '{known[0]}' has {known[1]} rows, "
                f"'{column.name}' {size}"
            )
        known = known or (column.name, size)


def _groups(wanted: Sequence[Any]) -> list[list[int]]:
    """The positions of each group's lookups."""
    positions = collections.defaultdict(list)
    for position, item in enumerate(wanted):
        if isinstance(item, LookupRequest):
            positions[item.group].append(position)
    return list(positions.values())


def _op_name(requests: Sequence[LookupRequest]) -> str | None:
    group = requests[0].group
    return None if group is None else group.op_name


def _lookup(request: LookupRequest) -> SparseLookup:
    ids = _as_matrix(request.ids)
    if request.weights is None:
        return SparseLookup(request.variable, ids, request.combiner)
    weights = tf.cast(request.weights.values, tf.float32)
    positive_only = request.prune_weights and request.combiner != "sum"
    return SparseLookup(request.variable, ids, request.combiner, weights, positive_weights_only=positive_only)


def _as_matrix(ids: tf.SparseTensor) -> tf.SparseTensor:
    """Ids with all dimensions but the last made one."""
    if ids.shape.rank == 2:
        return ids
    shape = tf.cast(ids.dense_shape, tf.int64)
    return tf.sparse.reshape(ids, tf.stack([tf.reduce_prod(shape[:-1]), shape[-1]]))


def _as_rows_of_the_batch(request: LookupRequest, rows: tf.Tensor) -> tf.Tensor:
    """Rows as [batch, dim]; ids of more than two dimensions have one bag for each sample all the same."""
    if request.ids.shape.rank == 2:
        return rows
    result = tf.reshape(rows, tf.stack([request.ids.dense_shape[0], request.variable.dim]))
    batch = request.ids.shape[0] if request.ids.shape.rank else None
    result.set_shape([batch, request.variable.dim])
    return result


def _with_leading_dimensions(request: LookupRequest, rows: tf.Tensor) -> tf.Tensor:
    if request.ids.shape.rank == 2:
        return rows
    shape = tf.concat([request.ids.dense_shape[:-1], [request.variable.dim]], axis=0)
    result = tf.reshape(rows, shape)
    if request.ids.shape.rank is not None:
        result.set_shape(request.ids.shape[:-1].concatenate([request.variable.dim]))
    return result
