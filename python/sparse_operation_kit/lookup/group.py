"""Lookups of groups of features: what is looked up in one op.

A group is a list of lookups, each of one feature in one embedding variable. Describing it is plain Python;
`lookup_group` makes the op.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from sparse_operation_kit import native
from sparse_operation_kit.core.communicator import communicator
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.lookup import sharded
from sparse_operation_kit.lookup.gradient_graph import check_gradient_graph

COMBINERS = ("sum", "mean", "sqrtn")


@dataclass(frozen=True)
class DenseLookup:
    """Rows of `ids`, of any shape; the output has that shape and one more dimension."""

    variable: EmbeddingVariable
    ids: tf.Tensor

    layout = "dense"
    combiner = "none"
    weights = None
    slots = 0
    exchange = "rows"

    @property
    def values(self) -> tf.Tensor:
        """The ids of the lookup, without their bags."""
        return self.ids

    @property
    def bags(self) -> list[tf.Tensor]:
        """The op's inputs that say which ids form a bag."""
        return []

    @property
    def output_shape(self) -> tf.TensorShape:
        """What is known of the output's shape."""
        return self.ids.shape.concatenate([self.variable.dim])


@dataclass(frozen=True)
class SparseLookup:
    """Bags of ids, combined to one row each: a bag is a row of the SparseTensor.

    The ids' indices may come in any order, and their columns do not matter. With `slots` the output is
    [rows / slots, slots, dim], else [rows, dim]. `weights` has one float for each id. `exchange` says what
    ranks send each other, "rows" or "sums" (see `DistributedEmbedding`); "sums" is for the only lookup of its
    variable in a group, without weights, and others exchange rows all the same.
    """

    variable: EmbeddingVariable
    ids: tf.SparseTensor
    combiner: str
    weights: tf.Tensor | None = None
    slots: int = 0
    exchange: str = "rows"

    layout = "sparse"

    @property
    def values(self) -> tf.Tensor:
        """The ids of the lookup, without their bags."""
        return self.ids.values

    @property
    def bags(self) -> list[tf.Tensor]:
        """The op's inputs that say which ids form a bag."""
        return [self.ids.indices, self.ids.dense_shape]

    @property
    def output_shape(self) -> tf.TensorShape:
        """What is known of the output's shape."""
        bags = self.ids.shape[0] if self.ids.shape.rank else None
        if not self.slots:
            return tf.TensorShape([bags, self.variable.dim])
        return tf.TensorShape([bags and bags // self.slots, self.slots, self.variable.dim])


@dataclass(frozen=True)
class RaggedLookup:
    """Bags of ids, combined to one row each: a bag is a row of the RaggedTensor. Output [rows, dim]."""

    variable: EmbeddingVariable
    ids: tf.RaggedTensor
    combiner: str
    weights: tf.Tensor | None = None

    layout = "ragged"
    slots = 0
    exchange = "rows"

    @property
    def values(self) -> tf.Tensor:
        """The ids of the lookup, without their bags."""
        return self.ids.values

    @property
    def bags(self) -> list[tf.Tensor]:
        """The op's inputs that say which ids form a bag."""
        return [tf.cast(self.ids.row_splits, tf.int64)]

    @property
    def output_shape(self) -> tf.TensorShape:
        """What is known of the output's shape."""
        splits = self.ids.row_splits.shape[0]
        return tf.TensorShape([splits and splits - 1, self.variable.dim])


Lookup = DenseLookup | SparseLookup | RaggedLookup


def lookup_group(
    lookups: Sequence[Lookup], training: bool | tf.Tensor = True, name: str | None = None
) -> list[tf.Tensor]:
    """Looks up all features of a group in one op.

    Args:
      lookups: At least one. A variable may stand in several of them; its duplicate ids are merged over all.
      training: Whether keys that are not there get a row; a Python bool or a scalar bool tensor. Without,
        they read as their initial values, and the group has no gradients.
      name: Of the op.

    Returns:
      One float32 tensor for each lookup.

    Raises:
      TypeError: Ids of a lookup do not have its variable's key_dtype, or `training` is no bool.
      ValueError: No lookup at all, an unknown combiner, or `training` is no scalar.
    """
    if not lookups:
        raise ValueError("A lookup group needs at least one lookup")
    for lookup in lookups:
        _check(lookup)
    # In an order that does not depend on that of the lookups, so that ranks agree about it.
    tables = sorted(
        {id(lookup.variable): lookup.variable for lookup in lookups}.values(),
        key=lambda table: table.m_var_name,
    )
    positions = {id(table): position for position, table in enumerate(tables)}
    arguments = {
        "handles": [table.handle for table in tables],
        "ids": [lookup.values for lookup in lookups],
        "bags": [bag for lookup in lookups for bag in lookup.bags],
        "weights": [lookup.weights for lookup in lookups if lookup.weights is not None],
        "training": _training_tensor(training, tables[0]),
        "num_lookups": len(lookups),
        "dims": [table.dim for table in tables],
        "table_of": [positions[id(lookup.variable)] for lookup in lookups],
        "layouts": [lookup.layout for lookup in lookups],
        "combiners": [lookup.combiner for lookup in lookups],
        "weighted": [lookup.weights is not None for lookup in lookups],
        "slots": [lookup.slots for lookup in lookups],
    }
    if communicator().size == 1:
        return list(native.ops.sok_group_lookup(**arguments, name=name).outputs)
    modes = [_exchange([lookup for lookup in lookups if lookup.variable is table]) for table in tables]
    outputs = sharded.look_up(arguments, modes, [table.m_var_name for table in tables], name)
    for lookup, output in zip(lookups, outputs, strict=True):
        output.set_shape(lookup.output_shape)
    return outputs


def _exchange(lookups: Sequence[Lookup]) -> str:
    """What owners of a table answer its lookups in a group with."""
    return (
        "sums"
        if len(lookups) == 1 and lookups[0].weights is None and lookups[0].exchange == "sums"
        else "rows"
    )


def _check(lookup: Lookup) -> None:
    variable = lookup.variable
    who = f"Lookup in embedding variable '{variable.m_var_name}'"
    if lookup.values.dtype != variable.key_dtype:
        raise TypeError(
            f"{who}: keys are {lookup.values.dtype.name}, but its key_dtype is {variable.key_dtype.name}"
        )
    if lookup.layout != "dense" and lookup.combiner not in COMBINERS:
        raise ValueError(f"{who}: unknown combiner {lookup.combiner!r}; known are {', '.join(COMBINERS)}")
    if lookup.weights is not None and lookup.weights.dtype != tf.float32:
        raise TypeError(f"{who}: weights are {lookup.weights.dtype.name}, not float32")


def _training_tensor(training: bool | tf.Tensor, variable: EmbeddingVariable) -> tf.Tensor:
    who = f"Lookup in embedding variable '{variable.m_var_name}'"
    if not isinstance(training, (bool, np.bool_)) and not tf.is_tensor(training):
        raise TypeError(f"{who}: training must be a bool or a scalar bool tensor, not {training!r}")
    tensor = tf.convert_to_tensor(training)
    if tensor.dtype != tf.bool:
        raise TypeError(f"{who}: training is {tensor.dtype.name}, not bool")
    if not tensor.shape.is_compatible_with([]):
        raise ValueError(f"{who}: training has shape {tensor.shape}, not []")
    return tensor


@ops.RegisterGradient("SokGroupLookup")
def _group_lookup_gradient(
    op: tf.Operation, *gradients: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    check_gradient_graph(op)
    num_tables = op.get_attr("num_tables")
    num_weights = op.get_attr("num_weights")
    num_lookups = op.get_attr("num_lookups")
    result = native.ops.sok_group_lookup_grad(
        handles=op.inputs[:num_tables],
        plan=op.outputs[num_lookups],
        gradients=gradients[:num_lookups],
        num_weights=num_weights,
        dims=op.get_attr("dims"),
        weighted=op.get_attr("weighted"),
    )
    tables = [
        tf.IndexedSlices(values, indices)
        for values, indices in zip(result.values, result.indices, strict=True)
    ]
    untouched = [None] * (num_lookups + op.get_attr("num_bags"))
    return [*tables, *untouched, *result.weight_gradients, None]


ops.NotDifferentiable("SokGroupLookupGrad")
