"""Lookups of groups of features: what is looked up in one op.

A group is a list of lookups, each of one feature in one embedding variable. Describing it is plain Python;
`lookup_group` makes the op.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import func_graph, ops

from sparse_operation_kit import native
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable

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

    @property
    def values(self) -> tf.Tensor:
        """The ids of the lookup, without their bags."""
        return self.ids

    @property
    def bags(self) -> list[tf.Tensor]:
        """The op's inputs that say which ids form a bag."""
        return []


@dataclass(frozen=True)
class SparseLookup:
    """Bags of ids, combined to one row each: a bag is a row of the SparseTensor.

    The ids' indices may come in any order, and their columns do not matter. With `slots` the output is
    [rows / slots, slots, dim], else [rows, dim]. `weights` has one float for each id.
    """

    variable: EmbeddingVariable
    ids: tf.SparseTensor
    combiner: str
    weights: tf.Tensor | None = None
    slots: int = 0

    layout = "sparse"

    @property
    def values(self) -> tf.Tensor:
        """The ids of the lookup, without their bags."""
        return self.ids.values

    @property
    def bags(self) -> list[tf.Tensor]:
        """The op's inputs that say which ids form a bag."""
        return [self.ids.indices, self.ids.dense_shape]


@dataclass(frozen=True)
class RaggedLookup:
    """Bags of ids, combined to one row each: a bag is a row of the RaggedTensor. Output [rows, dim]."""

    variable: EmbeddingVariable
    ids: tf.RaggedTensor
    combiner: str
    weights: tf.Tensor | None = None
    slots: int = 0

    layout = "ragged"

    @property
    def values(self) -> tf.Tensor:
        """The ids of the lookup, without their bags."""
        return self.ids.values

    @property
    def bags(self) -> list[tf.Tensor]:
        """The op's inputs that say which ids form a bag."""
        return [tf.cast(self.ids.row_splits, tf.int64)]


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
    tables = list({id(lookup.variable): lookup.variable for lookup in lookups}.values())
    positions = {id(table): position for position, table in enumerate(tables)}
    weights = [lookup.weights for lookup in lookups if lookup.weights is not None]
    bags = [bag for lookup in lookups for bag in lookup.bags]
    result = native.ops.sok_group_lookup(
        handles=[table.handle for table in tables],
        ids=[lookup.values for lookup in lookups],
        bags=bags,
        weights=weights,
        training=_training_tensor(training, tables[0]),
        num_lookups=len(lookups),
        dims=[table.dim for table in tables],
        table_of=[positions[id(lookup.variable)] for lookup in lookups],
        layouts=[lookup.layout for lookup in lookups],
        combiners=[lookup.combiner for lookup in lookups],
        weighted=[lookup.weights is not None for lookup in lookups],
        slots=[lookup.slots for lookup in lookups],
        name=name,
    )
    return list(result.outputs)


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
    _check_gradient_graph(op)
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


def _check_gradient_graph(op: tf.Operation) -> None:
    """Refuses gradients that leave a function's graph or a branch, where TensorFlow wants them dense."""
    # A gradient tape passes a stand-in for the op, but its tensors are real.
    op = op.outputs[0].op
    graph = op.graph
    in_function = isinstance(graph, func_graph.FuncGraph)
    leaves_function = in_function and graph is not tf.compat.v1.get_default_graph()
    if not leaves_function and not _is_in_branch(op):
        return
    outside = {id(inner): outer for outer, inner in graph.captures} if in_function else {}
    handles = [outside.get(id(handle), handle) for handle in op.inputs[: op.get_attr("num_tables")]]
    names = sorted(_source(handle).name for handle in handles)
    raise TypeError(
        f"There is no gradient for lookups in embedding variables {names} inside of tf.cond, tf.while_loop "
        "or tf.function: look the rows up outside and take them in, or use tf.stop_gradient"
    )


def _source(handle: tf.Tensor) -> tf.Operation:
    """The op that made a handle, before control flow passed it on."""
    op = handle.op
    while op.type in ("Switch", "Enter", "Identity"):
        op = op.inputs[0].op
    return op


def _is_in_branch(op: tf.Operation) -> bool:
    # Only where control flow is not made of functions: in graphs without TensorFlow's v2 behavior.
    context = op._get_control_flow_context()
    while context is not None:
        if context.IsCondContext():
            return True
        context = context.outer_context
    return False


ops.NotDifferentiable("SokGroupLookupGrad")
