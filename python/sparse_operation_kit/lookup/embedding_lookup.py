"""Lookups of many features at once, on embedding variables and ordinary variables mixed.

What is in embedding variables is looked up as one group: one op on one rank, three exchanges a step over
several, however many features there are. Ordinary variables go through TensorFlow's own lookups.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Union

import tensorflow as tf
from tensorflow.python.ops import variables

from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.lookup import ordinary
from sparse_operation_kit.lookup.group import (
    COMBINERS,
    DenseLookup,
    Lookup,
    RaggedLookup,
    SparseLookup,
    lookup_group,
)
from sparse_operation_kit.lookup.keys import as_keys

PARTITION_STRATEGIES = ("mod", "div")

Ids = Union[tf.SparseTensor, tf.RaggedTensor]


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
) -> list[tf.Tensor] | tf.Tensor:
    """Looks up bags of ids of several features, and combines the rows of each bag.

    Each output is what `tf.nn.embedding_lookup_sparse` gives for that feature, except that rows without ids
    at the end of a batch have their zeros too, so that all outputs of a batch have as many rows.

    Args:
      params: One for each feature: an embedding variable, or an ordinary variable, which may be partitioned
        (a `PartitionedVariable` or a list of variables). Their dims may differ, and one may stand several
        times.
      sp_ids: Lists of int ids, `[batch, any]`: a SparseTensor, of whose indices only the row matters, or a
        RaggedTensor, for each feature. Ids for an embedding variable are widened to its key_dtype. Those for
        an ordinary variable are positions, and those in a SparseTensor stand in the order of their rows.
      combiners: "sum", "mean" or "sqrtn" for each feature. The mean is divided by the sum of the weights,
        sqrtn by the root of the sum of their squares; zeros where that is zero.
      partition_strategy: "mod" or "div": how ids are spread over the parts of a partitioned variable.
      sp_weights: None, or for each feature None or what has a weight for each of its ids, of its ids' kind.
        Weights that are NaN or infinite are an `InvalidArgumentError` when the graph runs.
      name: Of the ops' scope.
      training: Whether keys that an embedding variable does not have get a row; a bool or a scalar bool
        tensor. Without, they read as their initial values, and there are no gradients for the embedding
        variables.
      side_by_side: Whether all outputs are one tensor, in which they stand next to each other. What is in
        embedding variables is written there in the first place: where there are no ordinary variables,
        nothing is copied.

    Returns:
      One tensor `[batch, dim of the variable]` for each feature, in their order; with `side_by_side` one
      tensor `[batch, sum of the dims]`.

    Raises:
      TypeError: Something is not of the types above; the message names the feature and its variable.
      ValueError: Lists of different lengths, no feature, an unknown combiner or partition strategy, or shapes
        that do not fit.
    """
    function = "group_embedding_lookup_sparse"
    weights = [None] * len(_a_list(function, "params", params)) if sp_weights is None else sp_weights
    lists = {"sp_ids": sp_ids, "combiners": combiners, "sp_weights": weights}
    variables_of = _variables(function, params, lists, partition_strategy)
    features = [
        _Bags(_describe(function, i, variable), variable, *of_feature)
        for i, (variable, *of_feature) in enumerate(
            zip(variables_of, sp_ids, combiners, weights, strict=True)
        )
    ]

    def look_up_ordinary(feature: "_Bags") -> tf.Tensor:
        return ordinary.look_up_bags(
            feature.variable,
            feature.ids,
            feature.combiner,
            feature.weights,
            partition_strategy,
            feature.who,
        )

    with tf.name_scope(name or function):
        outputs = _look_up(features, look_up_ordinary, training, side_by_side)
        if not side_by_side:
            return outputs
        return outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=1)


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
      params: As of `group_embedding_lookup_sparse`.
      ids: For each feature an int tensor of any shape, or what becomes one, or a RaggedTensor.
      partition_strategy: As of `group_embedding_lookup_sparse`.
      name: Of the ops' scope.
      training: As of `group_embedding_lookup_sparse`.

    Returns:
      For each feature a tensor of its ids' shape with one more dimension, the dim of its variable; a
      RaggedTensor where its ids are one.

    Raises:
      TypeError: Something is not of the types above; the message names the feature and its variable.
      ValueError: Lists of different lengths, no feature, or an unknown partition strategy.
    """
    function = "group_embedding_lookup"
    variables_of = _variables(function, params, {"ids": ids}, partition_strategy)
    features = [
        _Rows(_describe(function, i, variable), variable, of_feature)
        for i, (variable, of_feature) in enumerate(zip(variables_of, ids, strict=True))
    ]

    def look_up_ordinary(feature: "_Rows") -> tf.Tensor:
        return ordinary.look_up_rows(feature.variable, feature.flat_ids, partition_strategy, feature.who)

    with tf.name_scope(name or function):
        outputs = _look_up(features, look_up_ordinary, training)
        return [feature.shaped(output) for feature, output in zip(features, outputs, strict=True)]


class _Bags:
    """One feature whose rows are combined: checks what belongs to it."""

    def __init__(self, who: str, variable: Any, ids: Any, combiner: Any, weights: Ids | None) -> None:
        self.who = who
        self.variable = variable
        self.combiner = combiner
        self.weights = weights
        if not isinstance(combiner, str) or combiner not in COMBINERS:
            raise ValueError(f"{who}: unknown combiner {combiner!r}; known are {', '.join(COMBINERS)}")
        if isinstance(ids, tf.compat.v1.SparseTensorValue):
            ids = tf.SparseTensor.from_value(ids)
        if not isinstance(ids, tf.SparseTensor | tf.RaggedTensor):
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
            raise TypeError(f"{self.who}: weights are {weights.dtype.name}, which are no numbers")
        if not weights.values.shape.is_compatible_with(self.ids.values.shape):
            raise ValueError(
                f"{self.who}: {weights.values.shape[0]} weights for {self.ids.values.shape[0]} ids"
            )

    def lookup(self) -> Lookup:
        """The lookup in an embedding variable."""
        keys = self.ids.with_values(as_keys(self.ids.values, self.variable, self.who))
        weights = self.weights
        if weights is not None:
            weights = weights.with_values(tf.cast(weights.values, tf.float32))
        kind = SparseLookup if isinstance(keys, tf.SparseTensor) else RaggedLookup
        return kind(self.variable, keys, self.combiner, weights)


class _Rows:
    """One feature whose rows are given as they are."""

    def __init__(self, who: str, variable: Any, ids: Any) -> None:
        self.who = who
        self.variable = variable
        self._ragged = ids if isinstance(ids, tf.RaggedTensor) else None
        if isinstance(ids, tf.SparseTensor | tf.compat.v1.SparseTensorValue):
            raise TypeError(f"{who}: ids are a SparseTensor, which is for group_embedding_lookup_sparse")
        self.flat_ids = ids if self._ragged is None else ids.flat_values

    def lookup(self) -> Lookup:
        """The lookup in an embedding variable."""
        return DenseLookup(self.variable, as_keys(self.flat_ids, self.variable, self.who))

    def shaped(self, rows: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        """The rows of `flat_ids`, shaped as the ids."""
        return rows if self._ragged is None else self._ragged.with_flat_values(rows)


_Feature = _Bags | _Rows


def _look_up(
    features: Sequence[_Feature],
    look_up_ordinary: Callable[[Any], tf.Tensor],
    training: bool | tf.Tensor,
    side_by_side: bool = False,
) -> list[tf.Tensor]:
    """An output for each feature, or for all features in tables that follow each other."""
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
        outputs += [next(rows)] if _is_in_table(run[0]) else [look_up_ordinary(feature) for feature in run]
    return outputs


def _is_in_table(feature: _Feature) -> bool:
    return isinstance(feature.variable, EmbeddingVariable)


def _a_list(function: str, argument: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{function}: {argument} must be a list or a tuple, not {value!r}")
    return value


def _variables(function: str, params: Any, lists: dict[str, Any], partition_strategy: Any) -> list[Any]:
    """Returns what is looked up for each feature: an embedding variable, or what `tf.nn` takes for params."""
    params = _a_list(function, "params", params)
    if not params:
        raise ValueError(f"{function}: params must have at least one variable")
    for argument, value in lists.items():
        if len(_a_list(function, argument, value)) != len(params):
            raise ValueError(
                f"{function}: params has {len(params)} entries, but {argument} has {len(value)}; each "
                "feature needs one of each"
            )
    if partition_strategy not in PARTITION_STRATEGIES:
        raise ValueError(
            f"{function}: unknown partition_strategy {partition_strategy!r}; known are "
            f"{', '.join(PARTITION_STRATEGIES)}"
        )
    return [_variable(f"{function}: params[{i}]", entry) for i, entry in enumerate(params)]


def _variable(who: str, entry: Any) -> Any:
    parts = list(entry) if isinstance(entry, list | tuple | variables.PartitionedVariable) else [entry]
    if not parts:
        raise ValueError(f"{who} is an empty list")
    if len(parts) == 1 and isinstance(parts[0], EmbeddingVariable):
        return parts[0]
    for part in parts:
        if isinstance(part, EmbeddingVariable):
            raise TypeError(
                f"{who} has embedding variable '{part.m_var_name}' in a list of {len(parts)}: an embedding "
                "variable holds all of its rows, and is no part of another"
            )
        if not isinstance(part, tf.Variable) and not tf.is_tensor(part):
            raise TypeError(f"{who} must be an embedding variable or an ordinary one, not {part!r}")
    return parts


def _describe(function: str, i: int, variable: Any) -> str:
    if isinstance(variable, EmbeddingVariable):
        return f"{function}: params[{i}], embedding variable '{variable.m_var_name}'"
    return f"{function}: params[{i}], variable '{ordinary.name_of(variable)}'"
