"""Reads graphs: the inputs and outputs of the library's ops by name, and where a gradient comes from.

No other module compares types of ops or counts their inputs and outputs. Names are those of the registrations
in `sok_ops/ops`. Functions of this module add nothing to a graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph

# Types of the library's ops.
TABLE = "SokTable"
TABLE_EXPORT = "SokTableExport"
GROUP_LOOKUP = "SokGroupLookup"
GROUP_LOOKUP_AHEAD = "SokGroupLookupAhead"
GROUP_LOOKUP_READ = "SokGroupLookupRead"
GROUP_LOOKUP_GRAD = "SokGroupLookupGrad"
GROUP_LOOKUP_APPLY_GRADIENTS = "SokGroupLookupApplyGradients"
GROUP_ROUTE = "SokGroupRoute"
GROUP_SERVE = "SokGroupServe"
GROUP_COMBINE = "SokGroupCombine"
GROUP_REDUCE = "SokGroupReduce"
GROUP_SUM = "SokGroupSum"
GROUP_SUM_APPLY_GRADIENTS = "SokGroupSumApplyGradients"
DIVIDE_GRADIENTS = "SokDivideGradients"
OPAQUE = "SokOpaque"
TABLE = "SokTable"

_PREFIX = "Sok"
# Ops that need no row of the tables whose handles they take.
_ROUTE_OR_MERGE = (GROUP_LOOKUP_AHEAD, GROUP_ROUTE)
# Ops with the outputs `indices` and `values`: for each table distinct row numbers, and the sum of each row.
_GIVE_GRADIENTS = (GROUP_LOOKUP_GRAD, GROUP_SUM)
# Ops that do not take the handles of their tables. The op that gives the named input does, or is listed too.
_LEAD_TO_HANDLES = {GROUP_REDUCE: "plan", GROUP_SUM: "served", DIVIDE_GRADIENTS: "values"}

# Types of TensorFlow's ops that matter here, each with the reason.
_PASS_HANDLES_ON = {
    "Identity": "copies a handle where a function or a loop returns it",
    "Enter": "takes a handle into a loop that is not a function",
    "Switch": "takes a handle into a branch that is not a function",
}
_PASS_GRADIENTS_ON = {
    "Identity": "optimizers gate gradients with it: none is used before all gradients of an op are computed",
}
_GROUP_CONTROL_INPUTS = {
    "NoOp": "tf.group makes it; a gate may wait for it in place of the gradients",
}
_HAVE_BRANCHES = {
    "If": "tf.cond makes it of two functions, then_branch and else_branch",
    "StatelessIf": "tf.cond makes it where neither function has state",
}
# The same by the beginning of the type, which all versions of an op share.
_FED = {
    "Placeholder": "has the value that a run feeds it",
}
_KEEP_NO_STATE_OF_STEPS = {
    "IteratorGetNext": "what an iterator gives does not depend on the step",
    "TensorArray": "the array lives as long as the run",
}
_READ_TENSORFLOW_TABLES = {
    "LookupTableFind": "gives the same in every step if the table never changes",
    "LookupTableSize": "gives the same in every step if the table never changes",
}
_FILLED_ONCE = {
    "HashTable": "only its initializer fills the table",
}


def operation(op: Any) -> tf.Operation:
    """The op that a gradient function was called for: a gradient tape passes a stand-in with its tensors."""
    return op if isinstance(op, tf.Operation) else op.outputs[0].op


def inputs_of(op: tf.Operation) -> dict[str, Any]:
    """The inputs of an op by the names of its registration, in the order of its inputs.

    Args:
      op: An op of any kind, or the stand-in that a gradient tape passes to gradient functions.

    Returns:
      For each name a tensor, or a list of tensors where the registration has a number or a list of types.
    """
    op = operation(op)
    return _by_name(op, op.op_def.input_arg, op.inputs)


def outputs_of(op: tf.Operation) -> dict[str, Any]:
    """The outputs of an op by name; as `inputs_of`."""
    op = operation(op)
    return _by_name(op, op.op_def.output_arg, op.outputs)


def output_name(tensor: tf.Tensor) -> tuple[str, int]:
    """The name of the output that a tensor is or belongs to, and the tensor's place in it."""
    outputs = outputs_of(tensor.op).items()
    places = [(name, place) for name, output in outputs for place in range(_count(output))]
    return places[tensor.value_index]


def gradients_of_outputs(op: tf.Operation, gradients: Sequence[Any]) -> dict[str, Any]:
    """What a gradient function is called with, by the names of the outputs; `op` as in `inputs_of`."""
    op = operation(op)
    return _by_name(op, op.op_def.output_arg, gradients)


def in_order_of_inputs(op: tf.Operation, gradients: Mapping[str, Sequence[Any]]) -> list[Any]:
    """What the gradient function of an op returns.

    Args:
      op: As in `inputs_of`.
      gradients: By the name of an input the gradients of its tensors. Other inputs have none.

    Returns:
      A gradient or None for each tensor that the op takes.
    """
    ordered: list[Any] = []
    for name, taken in inputs_of(op).items():
        ordered += gradients.get(name, [None] * _count(taken))
    return ordered


def handles_of(op: tf.Operation) -> list[tf.Tensor]:
    """The handles of the tables that a group's op takes, in the group's order; of another op none."""
    return inputs_of(op).get("handles", []) if _is_ours(op) else []


def tables_of(graph: tf.Graph) -> list[tf.Operation]:
    """The ops of a graph that make the handles of tables."""
    return [op for op in graph.get_operations() if op.type == TABLE]


def table_of(handle: tf.Tensor) -> tf.Operation:
    """The op that made a handle, outside of the functions, loops and branches that it was taken into."""
    while True:
        captured = _captured(handle)
        if captured is not None:
            handle = captured
        elif handle.op.type in _PASS_HANDLES_ON:
            (handle,) = (tensor for tensor in handle.op.inputs if tensor.dtype == tf.resource)
        else:
            return handle.op


def table_names(op: tf.Operation) -> list[str]:
    """The sorted names of the tables of a group, by any of its ops; none where they cannot be told."""
    op = operation(op)
    while op.type in _LEAD_TO_HANDLES:
        op = inputs_of(op)[_LEAD_TO_HANDLES[op.type]].op
    return sorted(table_of(handle).name for handle in handles_of(op))


def needs_no_row(op: tf.Operation) -> bool:
    """Whether an op is the part of a lookup that reads the ids alone, and so may run before a step."""
    return op.type in _ROUTE_OR_MERGE


def reads_state_of_steps(op: tf.Operation) -> bool:
    """Whether an op may give another value before a step than in it: it is fed, or reads what steps change.

    Only the op itself is judged, not the ops that it depends on.
    """
    if _begins_as(op, _FED):
        return True
    if _begins_as(op, _KEEP_NO_STATE_OF_STEPS):
        return False
    if _begins_as(op, _READ_TENSORFLOW_TABLES) and _begins_as(inputs_of(op)["table_handle"].op, _FILLED_ONCE):
        return False
    # Variables that are no resources are references.
    return any(tensor.dtype == tf.resource for tensor in op.inputs) or any(
        tensor.dtype._is_ref_dtype for tensor in op.outputs
    )


@dataclasses.dataclass(frozen=True)
class GroupGradient:
    """The gradients of a group's tables, as one op gives them.

    Attributes:
      op: The op. It gives for each table distinct row numbers and the sum of each row's gradients.
      divisor: What the sums are divided by afterwards, to average them over ranks; 1 where they are not.
    """

    op: tf.Operation
    divisor: int

    @property
    def is_over_ranks(self) -> bool:
        """Whether the sums are those of all ranks."""
        return self.op.type == GROUP_SUM

    @property
    def lookup(self) -> tf.Tensor:
        """What the lookup has left for its gradient. Once it exists, the lookup has read its rows."""
        return inputs_of(self.op)["served" if self.is_over_ranks else "plan"]

    @property
    def handles(self) -> list[tf.Tensor]:
        """The handles of the group's tables; none where the op that served the lookup cannot be told."""
        return handles_of(self.lookup.op if self.is_over_ranks else self.op)

    @property
    def reads_rows(self) -> bool:
        """Whether the op reads the rows of the tables, as it does for gradients of weights."""
        return self.op.type == GROUP_LOOKUP_GRAD and self.op.get_attr("num_weights") > 0


def untouched_gradient(gradient: tf.IndexedSlices, handle: tf.Tensor) -> tuple[GroupGradient, int] | None:
    """The gradient of a group that the gradient of one of its tables is part of, if nothing has changed it.

    Args:
      gradient: The gradient of the table, as an optimizer gets it.
      handle: The table's handle.

    Returns:
      The group's gradient and the table's position in the group. None where `gradient` has another origin or
      was changed: only gates and the division that averages over ranks may follow the op that gives it.
    """
    values, divisor = _before_gates(gradient.values)
    indices, _ = _before_gates(gradient.indices)
    op = values.op
    if indices.op is not op or op.type not in _GIVE_GRADIENTS:
        return None
    group = GroupGradient(op, divisor)
    if divisor != 1 and not group.is_over_ranks:
        return None
    (name, table), handles = output_name(indices), group.handles
    is_of_table = (
        name == "indices"
        and output_name(values) == ("values", table)
        and table < len(handles)
        and handles[table].op is handle.op
    )
    return (group, table) if is_of_table else None


def names_each_row_once(indices: tf.Tensor) -> bool:
    """Whether row numbers are known to be distinct: those of one group's gradient are, gated or not."""
    while indices.op.type in _PASS_GRADIENTS_ON:
        (indices,) = indices.op.inputs
    return indices.op.type in _GIVE_GRADIENTS


def comes_from_all_ranks(indices: tf.Tensor) -> bool:
    """Whether row numbers depend on those that a sum over ranks gives, whatever was done to them."""
    return any(op.type == GROUP_SUM for op in ops_behind(indices))


def ops_behind(tensor: tf.Tensor) -> Iterator[tf.Operation]:
    """Yields the op of a tensor and the ops that it depends on, each once.

    It yields the library's ops but not what they depend on: a table's gradient begins at one, and the model
    is behind it.
    """
    pending, seen = [tensor.op], set()
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        yield op
        if not _is_ours(op):
            pending.extend(tensor.op for tensor in op.inputs)


def nodes_of_branches(op: tf.Operation) -> list[tf.compat.v1.NodeDef]:
    """The nodes of both functions of a conditional; of another op none."""
    if op.type not in _HAVE_BRANCHES:
        return []
    branches = {op.get_attr(name).name for name in ("then_branch", "else_branch")}
    functions = op.graph.as_graph_def().library.function
    return [
        node for function in functions if function.signature.name in branches for node in function.node_def
    ]


def _is_ours(op: tf.Operation) -> bool:
    return op.type.startswith(_PREFIX)


def _begins_as(op: tf.Operation, types: Mapping[str, str]) -> bool:
    return op.type.startswith(tuple(types))


def _count(argument: Any) -> int:
    """How many tensors an input or an output has."""
    return len(argument) if isinstance(argument, list) else 1


def _by_name(op: tf.Operation, arguments: Sequence[Any], tensors: Sequence[Any]) -> dict[str, Any]:
    """What there is for each tensor, by the names of `arguments`: the inputs or the outputs of the OpDef."""
    named: dict[str, Any] = {}
    remaining = iter(tensors)
    for argument in arguments:
        if argument.number_attr:
            named[argument.name] = [next(remaining) for _ in range(op.get_attr(argument.number_attr))]
        elif argument.type_list_attr:
            named[argument.name] = [next(remaining) for _ in op.get_attr(argument.type_list_attr)]
        else:
            named[argument.name] = next(remaining)
    return named


def _captured(tensor: tf.Tensor) -> tf.Tensor | None:
    """What a function has captured as `tensor`; None where it is not captured."""
    if not isinstance(tensor.graph, func_graph.FuncGraph):
        return None
    return next((outer for outer, inner in tensor.graph.captures if inner is tensor), None)


def _before_gates(tensor: tf.Tensor) -> tuple[tf.Tensor, int]:
    """What stands before gates and the division that averages over ranks, and what that divides by.

    Gates are identities that wait for nothing but the op whose output they pass on. Where something in
    between waits for another op, or divides a second time, the answer is the tensor itself and 1.
    """
    source, between = tensor, []
    while source.op.type in _PASS_GRADIENTS_ON or source.op.type == DIVIDE_GRADIENTS:
        between.append(source.op)
        (source,) = source.op.inputs
    divisors = [op.get_attr("divisor") for op in between if op.type == DIVIDE_GRADIENTS]
    # Over ranks the op that gives gradients of weights is one of those that the sums are made from.
    awaited_anyway = {source.op, *(taken.op for taken in source.op.inputs), *between}
    if len(divisors) > 1 or not all(_waits_only_for(op, awaited_anyway) for op in between):
        return tensor, 1
    return source, divisors[0] if divisors else 1


def _waits_only_for(op: tf.Operation, awaited: set[tf.Operation]) -> bool:
    return all(
        control in awaited or (control.type in _GROUP_CONTROL_INPUTS and _waits_only_for(control, awaited))
        for control in op.control_inputs
    )
