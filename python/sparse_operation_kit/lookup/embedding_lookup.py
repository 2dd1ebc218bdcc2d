"""Lookups of many features at once, in a mix of embedding variables and ordinary variables.

All lookups in embedding variables form one group: one op on one rank, three exchanges per step over several
ranks, however many features there are. Ordinary variables go through TensorFlow's own lookups.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any, Union

import tensorflow as tf

from sparse_operation_kit.compat.tensors import with_values
from sparse_operation_kit.lookup import bags, ordinary
from sparse_operation_kit.lookup.bags import as_keys
from sparse_operation_kit.lookup.group import (
    COMBINERS,
    DenseLookup,
    Lookup,
    RaggedLookup,
    SparseLookup,
    lookup_group,
)
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable

PARTITION_STRATEGIES = ("mod", "div")

Ids = Union[tf.SparseTensor, tf.RaggedTensor]


# AutoGraph of TensorFlow 1.15 cannot convert the comprehensions of the functions that are called from here.
@tf.autograph.experimental.do_not_convert
def group_embedding_lookup_sparse(
    params: Sequence[Any],
    sp_ids: Sequence[Ids],
    combiners: Sequence[str],
    partition_strategy: str = "mod",
    sp_weights: Sequence[Ids | None] | None = None,
    name: str | None = None,
    *,
    training: bool | tf.Tensor = True,
    side_by_side: bool = False,
    is_sequence: bool = False,
    params_num_per_group: int = sys.maxsize,
) -> list[tf.Tensor] | tf.Tensor:
    """Looks up bags of ids of several features, and combines the rows of each bag.

    DeepRec's later releases have `sp_weights` before `partition_strategy`. Weights may be passed in that
    place too.

    Each output equals that of `tf.nn.embedding_lookup_sparse`, with one exception: bags without ids at the
    end of a batch get rows of zeros too, so that all outputs have the same number of rows.

    Args:
      params: For each feature an embedding variable or an ordinary variable. The latter may be partitioned (a
        `PartitionedVariable` or a list of variables). Dims may differ, and a variable may occur several
        times.
      sp_ids: For each feature the bags of int ids, `[batch, any]`, as a SparseTensor or a RaggedTensor. Of a
        SparseTensor's indices only the row is used. Ids for an embedding variable are widened to its
        key_dtype. Ids for an ordinary variable are row positions; in a SparseTensor they have to be in
        order of their rows.
      combiners: "sum", "mean" or "sqrtn" for each feature. "mean" divides by the sum of the weights, "sqrtn"
        by the square root of the sum of their squares; the output is zero if the divisor is.
      partition_strategy: "mod" or "div": how ids are spread over the parts of a partitioned variable.
      sp_weights: None, or for each feature None or a tensor of the same kind as its ids, with one weight per
        id. NaN or infinite weights raise an `InvalidArgumentError` when the graph runs.
      name: The name scope of the ops.
      training: Whether keys without a row in an embedding variable get one; a bool or a scalar bool tensor.
        If false, such keys read as their initial values, and the embedding variables get no gradients.
      side_by_side: Whether all outputs are concatenated to one tensor along the last dimension. Lookups in
        embedding variables write into that tensor directly; if there are no ordinary variables, nothing is
        copied.
      is_sequence: Whether the rows of a feature's ids are returned in the places of the ids instead of being
        combined. Then `combiners` has no effect, all of a SparseTensor's indices are used, and `side_by_side`
        must be false.
      params_num_per_group: At least 1. Has no effect: in DeepRec the number of variables of one op.

    Returns:
      One tensor `[batch, dim of the variable]` for each feature, in their order; with `side_by_side` one
      tensor `[batch, sum of the dims]`. With `is_sequence`, `[batch, longest sequence, dim]` for each
      feature, zeros where there is no id.

    Raises:
      TypeError: An argument has the wrong type; the message names the feature and its variable.
      ValueError: The lists are empty or differ in length, a combiner or the partition strategy is unknown,
        shapes do not match, embedding variables are on different devices, `params_num_per_group` is below 1,
        or both `side_by_side` and `is_sequence` are true.
    """
    function = "group_embedding_lookup_sparse"
    if not isinstance(partition_strategy, str):
        sp_weights, partition_strategy = partition_strategy, "mod" if sp_weights is None else sp_weights
    if params_num_per_group < 1:
        raise ValueError(f"{function}: params_num_per_group must be at least 1, not {params_num_per_group}")
    weights = [None] * len(_a_list(function, "params", params)) if sp_weights is None else sp_weights
    lists = {"sp_ids": sp_ids, "combiners": combiners, "sp_weights": weights}
    variables_of = _variables(function, params, lists, partition_strategy)
    features = [
        _Bags(_describe(function, i, variable), variable, *of_feature)
        for i, (variable, *of_feature) in enumerate(zip(variables_of, sp_ids, combiners, weights))
    ]

    with tf.name_scope(name or function):
        if is_sequence:
            if side_by_side:
                raise ValueError(f"{function}: side_by_side is for combined rows, not for is_sequence")
            return _sequences(features, partition_strategy, training)
        outputs = _look_up(features, partition_strategy, training, side_by_side)
        if not side_by_side:
            return outputs
        return outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=1)


def _sequences(
    features: Sequence[_Bags], partition_strategy: str, training: bool | tf.Tensor
) -> list[tf.Tensor]:
    """Returns the rows of each feature in the places of its ids."""

    flat = [_Rows(feature.who, feature.variable, feature.ids.values) for feature in features]
    rows = _look_up(flat, partition_strategy, training)
    return [
        ordinary.pad_sequences(feature.ids, feature.weights, of_feature, feature.who)
        for feature, of_feature in zip(features, rows)
    ]


@tf.autograph.experimental.do_not_convert
def group_embedding_lookup(
    params: Sequence[Any],
    ids: Sequence[Any],
    partition_strategy: str = "mod",
    name: str | None = None,
    *,
    training: bool | tf.Tensor = True,
) -> list[tf.Tensor | tf.RaggedTensor]:
    """Looks up the rows of several features' ids.

    Args:
      params: As for `group_embedding_lookup_sparse`.
      ids: For each feature an int tensor of any shape, a value that converts to one, or a RaggedTensor.
      partition_strategy: As for `group_embedding_lookup_sparse`.
      name: The name scope of the ops.
      training: As for `group_embedding_lookup_sparse`.

    Returns:
      For each feature a tensor with the shape of its ids and one more dimension, the dim of its variable; a
      RaggedTensor if its ids are one.

    Raises:
      TypeError: An argument has the wrong type; the message names the feature and its variable.
      ValueError: The lists are empty or differ in length, the partition strategy is unknown, or embedding
        variables are on different devices.
    """
    function = "group_embedding_lookup"
    variables_of = _variables(function, params, {"ids": ids}, partition_strategy)
    features = [
        _Rows(_describe(function, i, variable), variable, of_feature)
        for i, (variable, of_feature) in enumerate(zip(variables_of, ids))
    ]

    with tf.name_scope(name or function):
        outputs = _look_up(features, partition_strategy, training)
        return [feature.shaped(output) for feature, output in zip(features, outputs)]


class _Bags:
    """One feature whose rows are combined; checks its ids, combiner and weights."""

    def __init__(self, who: str, variable: Any, ids: Any, combiner: Any, weights: Ids | None) -> None:
        self.who = who
        self.variable = variable
        self.combiner = combiner
        self.weights = weights
        if not isinstance(combiner, str) or combiner not in COMBINERS:
            raise ValueError(f"{who}: unknown combiner {combiner!r}; known are {', '.join(COMBINERS)}")
        if isinstance(ids, tf.compat.v1.SparseTensorValue):
            ids = tf.SparseTensor.from_value(ids)
        if not isinstance(ids, (tf.SparseTensor, tf.RaggedTensor)):
            raise TypeError(f"{who}: ids must be a SparseTensor or a RaggedTensor, not {ids!r}")
        self.ids = ids
        self._check_rank(ids, "ids")
        if weights is not None:
            self._check_weights(weights)

    def _check_rank(self, tensor: Ids, what: str) -> None:
        if isinstance(tensor, tf.RaggedTensor):
            is_matrix = not isinstance(tensor.values, tf.RaggedTensor)
            is_matrix = is_matrix and tensor.values.shape.is_compatible_with([None])
        else:
            is_matrix = not isinstance(tensor, tf.SparseTensor) or tensor.shape.rank in (None, 2)
        if not is_matrix:
            raise ValueError(
                f"{self.who}: {what} of a {type(tensor).__name__} must be [batch, any], not of shape "
                f"{tensor.shape}"
            )

    def _check_weights(self, weights: Ids) -> None:
        if isinstance(weights, tf.compat.v1.SparseTensorValue):
            self.weights = weights = tf.SparseTensor.from_value(weights)
        if not isinstance(weights, type(self.ids)):
            raise TypeError(
                f"{self.who}: weights of ids in a {type(self.ids).__name__} must be None or one too, not "
                f"{weights!r}"
            )
        self._check_rank(weights, "weights")
        if not (weights.dtype.is_floating or weights.dtype.is_integer):
            raise TypeError(f"{self.who}: weights must be numbers, not {weights.dtype.name}")
        if not weights.values.shape.is_compatible_with(self.ids.values.shape):
            raise ValueError(
                f"{self.who}: {weights.values.shape[0]} weights for {self.ids.values.shape[0]} ids"
            )

    def lookup(self) -> Lookup:
        """The lookup in an embedding variable."""
        keys = with_values(self.ids, as_keys(self.ids.values, self.variable, self.who))
        weights = self.weights
        if weights is not None:
            weights = with_values(weights, tf.cast(weights.values, tf.float32))
        kind = SparseLookup if isinstance(keys, tf.SparseTensor) else RaggedLookup
        return kind(self.variable, keys, self.combiner, weights)

    def look_up_ordinary(self, partition_strategy: str) -> tf.Tensor:
        """The output for an ordinary variable."""
        return ordinary.look_up_bags(
            self.variable, self.ids, self.combiner, self.weights, partition_strategy, self.who
        )


class _Rows:
    """One feature whose rows are returned without combining them."""

    def __init__(self, who: str, variable: Any, ids: Any) -> None:
        self.who = who
        self.variable = variable
        self._ragged = ids if isinstance(ids, tf.RaggedTensor) else None
        if isinstance(ids, (tf.SparseTensor, tf.compat.v1.SparseTensorValue)):
            raise TypeError(f"{who}: ids are a SparseTensor, which is for group_embedding_lookup_sparse")
        self.flat_ids = ids if self._ragged is None else ids.flat_values

    def lookup(self) -> Lookup:
        """The lookup in an embedding variable."""
        return DenseLookup(self.variable, as_keys(self.flat_ids, self.variable, self.who))

    def look_up_ordinary(self, partition_strategy: str) -> tf.Tensor:
        """The rows of `flat_ids` in an ordinary variable."""
        return ordinary.look_up_rows(self.variable, self.flat_ids, partition_strategy, self.who)

    def shaped(self, rows: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        """Returns the rows of `flat_ids` in the shape of the ids."""
        return rows if self._ragged is None else self._ragged.with_flat_values(rows)


_Feature = Union[_Bags, _Rows]


def _look_up(
    features: Sequence[_Feature],
    partition_strategy: str,
    training: bool | tf.Tensor,
    side_by_side: bool = False,
) -> list[tf.Tensor]:
    """Returns an output for each feature; with `side_by_side`, consecutive features in tables share one."""
    runs = [[feature] for feature in features]
    if side_by_side:
        runs = [list(run) for _, run in itertools.groupby(features, _is_in_table)]
    of_tables = [run for run in runs if _is_in_table(run[0])]
    lookups = [feature.lookup() for run in of_tables for feature in run]
    rows = iter(
        lookup_group(lookups, training, side_by_side=[len(run) for run in of_tables]) if lookups else ()
    )
    outputs = []
    for run in runs:
        if _is_in_table(run[0]):
            outputs.append(next(rows))
        else:
            outputs += [feature.look_up_ordinary(partition_strategy) for feature in run]
    return outputs


def _is_in_table(feature: _Feature) -> bool:
    return isinstance(feature.variable, EmbeddingVariable)


def _a_list(function: str, argument: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{function}: {argument} must be a list or a tuple, not {value!r}")
    return value


def _variables(function: str, params: Any, lists: dict[str, Any], partition_strategy: Any) -> list[Any]:
    """Returns for each feature an embedding variable, or `params` for the lookups of `tf.nn`."""
    params = _a_list(function, "params", params)
    if not params:
        raise ValueError(f"{function}: params must have at least one variable")
    for argument, value in lists.items():
        if len(_a_list(function, argument, value)) != len(params):
            raise ValueError(
                f"{function}: params has {len(params)} entries, but {argument} has {len(value)}; each "
                "list needs one entry per feature"
            )
    if partition_strategy not in PARTITION_STRATEGIES:
        raise ValueError(
            f"{function}: unknown partition_strategy {partition_strategy!r}; known are "
            f"{', '.join(PARTITION_STRATEGIES)}"
        )
    return [_variable(f"{function}: params[{i}]", entry) for i, entry in enumerate(params)]


def _variable(who: str, entry: Any) -> Any:
    parts = bags.parts(entry)
    if not parts:
        raise ValueError(f"{who} is an empty list")
    if len(parts) == 1 and isinstance(parts[0], EmbeddingVariable):
        return parts[0]
    for part in parts:
        if isinstance(part, EmbeddingVariable):
            raise TypeError(
                f"{who} has embedding variable '{part.m_var_name}' in a list of {len(parts)}: an embedding "
                "variable holds all of its rows, and cannot be a part of a partitioned variable"
            )
        if not isinstance(part, tf.Variable) and not tf.is_tensor(part):
            raise TypeError(f"{who} must be an embedding variable or an ordinary one, not {part!r}")
    return parts


def _describe(function: str, i: int, variable: Any) -> str:
    if isinstance(variable, EmbeddingVariable):
        return f"{function}: params[{i}], embedding variable '{variable.m_var_name}'"
    return f"{function}: params[{i}], variable '{ordinary.name_of(variable)}'"
