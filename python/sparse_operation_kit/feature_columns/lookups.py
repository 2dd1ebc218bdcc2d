"""The lookups of columns, and the ops that run those of a group together."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.feature_columns.scopes import Group, current_training
from sparse_operation_kit.lookup import bags
from sparse_operation_kit.lookup.group import SparseLookup, lookup_group
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


@dataclasses.dataclass(frozen=True)
class LookupRequest:
    """A column's lookup.

    Attributes:
      variable: The embedding variable.
      ids: int64 keys [d0, ..., dn]; the last dimension is combined.
      weights: One float per id, in the order of the ids, or None.
      combiner: "sum", "mean" or "sqrtn".
      group: The column's group.
      prune_weights: Whether "mean" and "sqrtn" leave out ids with a weight <= 0, as
        `tf.nn.safe_embedding_lookup_sparse` does.
    """

    variable: EmbeddingVariable
    ids: tf.SparseTensor
    weights: tf.SparseTensor | None
    combiner: str
    group: Group | None = None
    prune_weights: bool = True


def sparse_features(features: Any) -> Any:
    """Returns features with SparseTensors for RaggedTensors, which TensorFlow's columns do not take."""
    if not isinstance(features, dict) or not any(
        isinstance(one, tf.RaggedTensor) for one in features.values()
    ):
        return features
    return {
        name: feature.to_sparse() if isinstance(feature, tf.RaggedTensor) else feature
        for name, feature in features.items()
    }


def look_up_alone(request: LookupRequest, name: str | None = None) -> tf.Tensor:
    """Runs the lookup of one column.

    Returns:
      Rows [d0, ..., dn-1, dim], zeros where there is no id.

    Raises:
      ValueError: The combiner is unknown.
    """
    rows = lookup_group([_lookup(request)], current_training(), name)[0]
    return bags.with_leading_dimensions(rows, request.ids)


def outputs_of_columns(wanted: Sequence[tf.Tensor | LookupRequest]) -> list[tf.Tensor]:
    """Runs the lookups of columns, in one op for each group.

    Args:
      wanted: For each column its output or its lookup.

    Returns:
      The output of each column, [batch, elements].
    """
    return _looked_up(wanted, lambda members, requests: [[position] for position in members])


def side_by_side(wanted: Sequence[tf.Tensor | LookupRequest]) -> tf.Tensor:
    """Like `outputs_of_columns`; returns the outputs side by side, [batch, all elements].

    The lookups of consecutive columns of a group write the tensor directly. If there are no other columns,
    nothing is copied.
    """
    outputs = _looked_up(wanted, _runs)
    return outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=1)


def _looked_up(
    wanted: Sequence[tf.Tensor | LookupRequest], runs_of: Callable[..., list[list[int]]]
) -> list[tf.Tensor]:
    """Runs the lookups of each group. Each run of columns that `runs_of` returns shares one tensor."""
    outputs = list(wanted)
    for members in _groups(wanted):
        requests = [wanted[position] for position in members]
        runs, group = runs_of(members, requests), requests[0].group
        rows = lookup_group(
            [_lookup(request) for request in requests],
            current_training(),
            None if group is None else group.op_name,
            side_by_side=[len(run) for run in runs],
        )
        for run, row in zip(runs, rows):
            outputs[run[0]] = _as_rows_of_the_batch(wanted[run[0]], row)
            outputs[run[0] + 1 : run[-1] + 1] = [None] * (len(run) - 1)
    return [output for output in outputs if output is not None]


def _runs(members: Sequence[int], requests: Sequence[LookupRequest]) -> list[list[int]]:
    """Splits the members into runs of consecutive columns with ids [batch, any], and single others."""
    runs: list[list[int]] = []
    joinable = False
    for position, request in zip(members, requests):
        is_matrix = request.ids.shape.rank == 2
        if joinable and is_matrix and runs[-1][-1] + 1 == position:
            runs[-1].append(position)
        else:
            runs.append([position])
        joinable = is_matrix
    return runs


def check_batch_sizes(wanted: Sequence[tf.Tensor | LookupRequest], columns: Sequence[Any]) -> None:
    """Checks that the known batch sizes of the columns are equal.

    Raises:
      ValueError: Two columns have different batch sizes; the message names them.
    """
    known = None
    for item, column in zip(wanted, columns):
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
    """Returns the positions of each group's lookups."""
    positions = collections.defaultdict(list)
    for position, item in enumerate(wanted):
        if isinstance(item, LookupRequest):
            positions[item.group].append(position)
    return list(positions.values())


def _lookup(request: LookupRequest) -> SparseLookup:
    ids, _ = bags.as_matrices(request.ids, None)
    if request.weights is None:
        return SparseLookup(request.variable, ids, request.combiner)
    weights = tf.cast(request.weights.values, tf.float32)
    positive_only = request.prune_weights and request.combiner != "sum"
    return SparseLookup(request.variable, ids, request.combiner, weights, positive_weights_only=positive_only)


def _as_rows_of_the_batch(request: LookupRequest, rows: tf.Tensor) -> tf.Tensor:
    """Returns the rows as [batch, dim]; ids with more than two dimensions have one bag per sample too."""
    if request.ids.shape.rank == 2:
        return rows
    result = tf.reshape(rows, tf.stack([request.ids.dense_shape[0], request.variable.dim]))
    batch = request.ids.shape[0] if request.ids.shape.rank else None
    result.set_shape([batch, request.variable.dim])
    return result
