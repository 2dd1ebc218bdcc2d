"""Lookups of groups of features.

A group is a list of lookups, each of one feature in one embedding variable. The lookups are plain Python
objects; `lookup_group` adds the ops to the graph: one, or over several ranks those of `sharded`.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.changes.dialect import dialect
from sparse_operation_kit.compat.internals import ops, resource_variable_ops
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup import branches, sharded
from sparse_operation_kit.lookup.gradient_graph import (
    Gradients,
    gradient_of,
    refuse_second_derivative,
    table_slices,
)
from sparse_operation_kit.newer_python import set_within
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables import row_lookup
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.table_device import check_same_device, host_input

COMBINERS = ("sum", "mean", "sqrtn")

_reads_only = contextvars.ContextVar("sok_reads_only", default=False)
_looks_ahead = contextvars.ContextVar("sok_looks_ahead", default=False)


@dataclass(frozen=True)
class DenseLookup:
    """Rows of `ids`, which have any shape; the output has that shape and one more dimension."""

    variable: EmbeddingVariable
    ids: tf.Tensor

    layout = "dense"
    combiner = "none"
    weights = None
    slots = 0
    exchange = "rows"
    positive_weights_only = False
    is_placed = False

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


class _OfBags:
    """What lookups of bags have in common."""

    ids: Any
    weights: Any
    # The attribute of their tensors that says which ids form a bag.
    _places: str

    @property
    def values(self) -> tf.Tensor:
        """The ids of the lookup, without their bags."""
        return self.ids.values

    @property
    def bags(self) -> list[tf.Tensor]:
        """The op's inputs that say which ids form a bag."""
        placed = [self.ids, self.weights] if self.is_placed else [self.ids]
        return [tf.cast(getattr(one, self._places), tf.int64) for one in placed]

    @property
    def is_placed(self) -> bool:
        """Whether the weights bring places other than the ids'."""
        has_places = isinstance(self.weights, type(self.ids))
        return has_places and getattr(self.weights, self._places) is not getattr(self.ids, self._places)


@dataclass(frozen=True)
class SparseLookup(_OfBags):
    """Bags of ids, each combined to one row. A bag is a row of the SparseTensor.

    The ids' indices may be in any order, and their columns are ignored. With `slots` the output is
    [rows / slots, slots, dim], else [rows, dim]. `weights` has one float for each id; if it is a
    SparseTensor, its indices must equal those of the ids when the graph runs. `exchange` says what ranks send
    each other, "rows" or "sums" (see `DistributedEmbedding`). "sums" takes effect only without weights, and
    if no other lookup of the group is in the same variable. With `positive_weights_only` ids with a weight
    <= 0 are left out, also of the divisors of "mean" and "sqrtn", as in
    `tf.nn.safe_embedding_lookup_sparse`.
    """

    variable: EmbeddingVariable
    ids: tf.SparseTensor
    combiner: str
    weights: Any = None  # tf.Tensor, tf.SparseTensor or None
    slots: int = 0
    exchange: str = "rows"
    positive_weights_only: bool = False

    layout = "sparse"
    _places = "indices"

    @property
    def output_shape(self) -> tf.TensorShape:
        """What is known of the output's shape."""
        bags = self.ids.shape[0] if self.ids.shape.rank else None
        if not self.slots:
            return tf.TensorShape([bags, self.variable.dim])
        return tf.TensorShape([bags and bags // self.slots, self.slots, self.variable.dim])


@dataclass(frozen=True)
class RaggedLookup(_OfBags):
    """Bags of ids, each combined to one row. A bag is a row of the RaggedTensor. The output is [rows, dim].

    `weights`, which may be a RaggedTensor, and `positive_weights_only` are as in `SparseLookup`.
    """

    variable: EmbeddingVariable
    ids: tf.RaggedTensor
    combiner: str
    weights: Any = None  # tf.Tensor, tf.RaggedTensor or None
    positive_weights_only: bool = False

    layout = "ragged"
    slots = 0
    exchange = "rows"
    _places = "row_splits"

    @property
    def output_shape(self) -> tf.TensorShape:
        """What is known of the output's shape."""
        splits = self.ids.row_splits.shape[0]
        return tf.TensorShape([splits and splits - 1, self.variable.dim])


Lookup = Union[DenseLookup, SparseLookup, RaggedLookup]


# AutoGraph would convert all that is called from here, in Keras layers and in a `tf.function`, which takes
# longer than to build the ops. Nothing here branches on a tensor.
@tf.autograph.experimental.do_not_convert
@branches.rows_from_outside
def lookup_group(
    lookups: Sequence[Lookup],
    training: bool | tf.Tensor = True,
    name: str | None = None,
    side_by_side: bool | Sequence[int] = False,
) -> list[tf.Tensor]:
    """Looks up all features of a group in one op; over several ranks, in the ops of `sharded.look_up`.

    Args:
      lookups: At least one. A variable may occur in several of them; duplicate ids are merged over all.
      training: Whether keys without a row get one; a Python bool or a scalar bool tensor. If false, such keys
        read as their initial values, and the group has no gradients.
      name: The name of the op, or the name scope of several.
      side_by_side: Which lookups write into the same output, next to each other along its last dimension.
        This copies nothing, forward or backward. False: each lookup has its own output. True: all share one.
        A list of numbers: [2, 3] means that the first two lookups share the first output and the next three
        the second. Lookups that share an output have the same shape except for the last dimension; otherwise
        running them raises InvalidArgumentError.

    Returns:
      One float32 tensor for each output. That of one lookup has the shape that its class describes; the last
      dimension of an output of several lookups is the sum of their dims.

    Raises:
      TypeError: The ids of a lookup do not have its variable's key_dtype, its weights are not float32, or
        `training` is not bool.
      ValueError: There is no lookup, variables are on different devices, a combiner is unknown, sparse ids
        are not a matrix, `positive_weights_only` is set without weights, `training` is not a scalar, the
        numbers in `side_by_side` do not add up to the number of lookups, or the known shapes of lookups that
        share an output differ.
    """
    if not lookups:
        raise ValueError("A lookup group needs at least one lookup")
    for lookup in lookups:
        _check(lookup)
    beside = _numbers_beside(side_by_side, len(lookups))
    shapes = _output_shapes(lookups, beside)
    # Sorted by name, so that all ranks have the same order even if the order of the lookups differs.
    tables = sorted(
        {id(lookup.variable): lookup.variable for lookup in lookups}.values(),
        key=lambda table: table.m_var_name,
    )
    check_same_device(tables, "looked up in one group")
    for table in tables:
        # Makes gradient tapes watch the table, as reading an ordinary variable does.
        resource_variable_ops.variable_accessed(table)
    positions = {id(table): position for position, table in enumerate(tables)}
    arguments = {
        "handles": [table.handle for table in tables],
        "ids": [lookup.values for lookup in lookups],
        "bags": [bag for lookup in lookups for bag in lookup.bags],
        "dense_shapes": [
            host_input(tables[0], lookup.ids.dense_shape) for lookup in lookups if lookup.layout == "sparse"
        ],
        "weights": [_weight_values(lookup) for lookup in lookups if lookup.weights is not None],
        "training": _training_tensor(training, tables[0]),
        "num_outputs": len(beside),
        "dims": [table.dim for table in tables],
        "table_of": [positions[id(lookup.variable)] for lookup in lookups],
        "layouts": [lookup.layout for lookup in lookups],
        "combiners": [lookup.combiner for lookup in lookups],
        "weighted": [lookup.weights is not None for lookup in lookups],
        "slots": [lookup.slots for lookup in lookups],
        "beside": beside,
        "positive_weights_only": [lookup.positive_weights_only for lookup in lookups],
        "placed": [lookup.is_placed for lookup in lookups],
    }
    is_sharded = communicator().size > 1 or bool(tables[0].servers.devices)
    weights = arguments["weights"]
    if is_sharded:
        modes = [_exchange([lookup for lookup in lookups if lookup.variable is table]) for table in tables]
        outputs = sharded.look_up(arguments, modes, tables, name)
    elif _looks_ahead.get():
        outputs, weights = _look_up_in_two(arguments, name), []
    else:
        outputs = list(native.ops.sok_group_lookup(**arguments, name=name).outputs)
    for shape, output in zip(shapes, outputs):
        output.set_shape(shape)
    return outputs if is_reading_only() else branches.with_gradients(tables, weights, outputs)


@row_lookup.register
def _look_up_rows(variable: EmbeddingVariable, keys: tf.Tensor, name: str | None) -> tf.Tensor:
    return lookup_group([DenseLookup(variable, keys)], name=name)[0]


def _look_up_in_two(arguments: dict[str, Any], name: str | None) -> list[tf.Tensor]:
    """Adds a group's lookup as two ops, of which the first needs no rows. Weights then have no gradients."""
    with tf.name_scope(name or graph_ops.GROUP_LOOKUP):
        ahead = native.ops.sok_group_lookup_ahead(**arguments)
        return list(
            native.ops.sok_group_lookup_read(
                handles=arguments["handles"],
                ahead=ahead,
                num_outputs=arguments["num_outputs"],
                num_lookups=len(arguments["layouts"]),
                dims=arguments["dims"],
            ).outputs
        )


def _exchange(lookups: Sequence[Lookup]) -> str:
    """Returns what the owners of a table's rows send back for its lookups in a group, "rows" or "sums"."""
    may_send_sums = len(lookups) == 1 and lookups[0].weights is None
    return lookups[0].exchange if may_send_sums else "rows"


def _weight_values(lookup: Lookup) -> tf.Tensor:
    weights = lookup.weights
    return weights.values if isinstance(weights, (tf.SparseTensor, tf.RaggedTensor)) else weights


def _numbers_beside(side_by_side: bool | Sequence[int], lookups: int) -> list[int]:
    """Returns the number of lookups in each output."""
    if isinstance(side_by_side, bool):
        return [lookups] if side_by_side else [1] * lookups
    numbers = [int(number) for number in side_by_side]
    if min(numbers, default=0) < 1 or sum(numbers) != lookups:
        raise ValueError(
            f"side_by_side is {numbers}; it must be positive numbers that add up to {lookups} lookups"
        )
    return numbers


def _output_shapes(lookups: Sequence[Lookup], beside: Sequence[int]) -> list[tf.TensorShape]:
    """Returns the static shapes of the outputs."""
    shapes = []
    remaining = iter(lookups)
    for number in beside:
        first = next(remaining)
        before = first.output_shape[:-1]
        width = first.variable.dim
        for lookup in itertools.islice(remaining, number - 1):
            if not before.is_compatible_with(lookup.output_shape[:-1]):
                raise ValueError(
                    f"Lookup in embedding variable '{lookup.variable.m_var_name}': its output of shape "
                    f"{lookup.output_shape} cannot be placed beside that of embedding variable "
                    f"'{first.variable.m_var_name}', of shape {first.output_shape}"
                )
            before = before.merge_with(lookup.output_shape[:-1])
            width += lookup.variable.dim
        shapes.append(before.concatenate([width]))
    return shapes


def _check(lookup: Lookup) -> None:
    variable = lookup.variable
    who = f"Lookup in embedding variable '{variable.m_var_name}'"
    if lookup.values.dtype != variable.key_dtype:
        raise TypeError(
            f"{who}: keys are {lookup.values.dtype.name}, but its key_dtype is {variable.key_dtype.name}"
        )
    if lookup.layout == "sparse" and lookup.ids.shape.rank not in (None, 2):
        raise ValueError(f"{who}: ids of a SparseTensor must be [bags, any], not of shape {lookup.ids.shape}")
    if lookup.layout != "dense" and lookup.combiner not in COMBINERS:
        raise ValueError(f"{who}: unknown combiner {lookup.combiner!r}; known are {', '.join(COMBINERS)}")
    if lookup.positive_weights_only and lookup.weights is None:
        raise ValueError(f"{who}: positive_weights_only, but there are no weights")
    if lookup.weights is not None and lookup.weights.dtype != tf.float32:
        raise TypeError(f"{who}: weights are {lookup.weights.dtype.name}, not float32")


def reading_only() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which lookups are built with `training=False`, whatever their argument says."""
    return set_within(_reads_only, True)


def is_reading_only() -> bool:
    """Returns whether the context `reading_only` is active."""
    return _reads_only.get()


def looking_ahead() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which lookups are built so that the part that needs no rows can run ahead."""
    return set_within(_looks_ahead, True)


def _training_tensor(training: bool | tf.Tensor, variable: EmbeddingVariable) -> tf.Tensor:
    who = f"Lookup in embedding variable '{variable.m_var_name}'"
    if not isinstance(training, (bool, np.bool_)) and not tf.is_tensor(training):
        raise TypeError(f"{who}: training must be a bool or a scalar bool tensor, not {training!r}")
    inserts = dialect().inserts_keys() and not is_reading_only()
    tensor = host_input(variable, training if inserts else False)
    if tensor.dtype != tf.bool:
        raise TypeError(f"{who}: training is {tensor.dtype.name}, not bool")
    if not tensor.shape.is_compatible_with([]):
        raise ValueError(f"{who}: training has shape {tensor.shape}, not []")
    return tensor


@gradient_of(graph_ops.GROUP_LOOKUP)
def _gradients_of_group(op: tf.Operation, gradients: Sequence[tf.Tensor]) -> Gradients:
    return _gradients(op, gradients, op.get_attr("num_weights"), op.get_attr("weighted"))


@gradient_of(graph_ops.GROUP_LOOKUP_READ)
def _gradients_of_read(op: tf.Operation, gradients: Sequence[tf.Tensor]) -> Gradients:
    return _gradients(op, gradients, 0, [False] * op.get_attr("num_lookups"))


def _gradients(
    op: tf.Operation, gradients: Sequence[tf.Tensor], num_weights: int, weighted: Sequence[bool]
) -> Gradients:
    """Returns the gradients of the tables and of the weights, for an op with the outputs and a plan."""
    result = native.ops.sok_group_lookup_grad(
        handles=graph_ops.handles_of(op),
        plan=graph_ops.outputs_of(op)["plan"],
        gradients=gradients,
        num_weights=num_weights,
        dims=op.get_attr("dims"),
        weighted=weighted,
    )
    return table_slices(result), result.weight_gradients


ops.RegisterGradient(graph_ops.GROUP_LOOKUP_GRAD)(refuse_second_derivative)
ops.NotDifferentiable(graph_ops.GROUP_LOOKUP_AHEAD)
ops.NotDifferentiable(graph_ops.GROUP_LOOKUP_APPLY_GRADIENTS)
