"""Reads graphs: the inputs and outputs of the library's ops by name, and the origin of gradients.

Only this module checks op types of the library and counts their inputs and outputs. Names are those of the
registrations in `sok_ops/ops`. The functions add nothing to a graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from sparse_operation_kit.compat.internals import func_graph, op_definition

_T = TypeVar("_T")

# Types of the library's ops.
INIT_HAS_RUN = "SokInitHasRun"
TABLE = "SokTable"
INITIALIZE_TABLE = "SokInitializeTable"
TABLE_ASSIGN = "SokTableAssign"
TABLE_EXPORT = "SokTableExport"
TABLE_SNAPSHOT = "SokTableSnapshot"
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
GROUP_JOIN = "SokGroupJoin"
GROUP_SUM_APPLY_GRADIENTS = "SokGroupSumApplyGradients"
DIVIDE_GRADIENTS = "SokDivideGradients"
EXCHANGE = "SokExchange"
OPAQUE = "SokOpaque"
NO_ROWS = "SokNoRows"
ROWS_OF_BRANCHES = "SokRowsOfBranches"
CHECK_CHECKPOINT = "SokCheckCheckpoint"
RAISE_FAILURES = "SokRaiseFailures"
CHECKPOINT_STAGE = "SokCheckpointStage"
RESTORE_STAGE = "SokRestoreStage"
VOCABULARY_LOOKUP = "SokVocabularyLookup"
MERGE_IDS = "SokMergeIds"
COMBINE_ROWS = "SokCombineRows"
COMBINE_ROWS_GRAD = "SokCombineRowsGrad"
# The gradient function of the IdentityN that passes on the outputs of a lookup in a branch.
IN_BRANCH = "SparseOperationKitRowsInBranch"
# Types of TensorFlow's ops that call the function `f`.
CALLS = ("PartitionedCall", "StatefulPartitionedCall")

_PREFIX = "Sok"
# Ops that need no rows of the tables whose handles they take.
_ROUTE_OR_MERGE = (GROUP_LOOKUP_AHEAD, GROUP_ROUTE)
# Ops that give the outputs of a lookup whose ids another op takes, and the input that leads to that op.
_TAKE_LOOKUPS = {GROUP_LOOKUP_READ: "ahead", GROUP_COMBINE: "plan"}
# Ops that take a step of an optimizer.
_TRAIN = ("SokApplyGradients", GROUP_LOOKUP_APPLY_GRADIENTS, GROUP_SUM_APPLY_GRADIENTS)
# Ops with the outputs `indices` and `values`: for each table distinct row numbers, and each row's gradient.
_GIVE_GRADIENTS = (GROUP_LOOKUP_GRAD, GROUP_SUM, GROUP_JOIN)
# Ops without handle inputs. The op that produces the named input has them, or is listed here too.
_LEAD_TO_HANDLES = {DIVIDE_GRADIENTS: "values", GROUP_JOIN: "plan"}

# TensorFlow op types, each with the reason why it is listed.
_PASS_HANDLES_ON = {
    "Identity": "copies a handle that a function or a loop returns",
    "Enter": "takes a handle into a loop that is not a function",
    "Switch": "takes a handle into a branch that is not a function",
}
_ENTERS_LOOPS = {
    "Enter": "takes a value into a loop that is not a function",
    "RefEnter": "the same, for a variable in its old form",
}
_LEAVES_LOOPS = {
    "Exit": "takes a value out of a loop that is not a function",
    "RefExit": "the same, for a variable in its old form",
}
_JOIN_SLICES = {
    "ConcatV2": "joins the gradients of several uses of a tensor",
    "Merge": "joins those of branches that are no functions",
    "Cast": "makes the numbers of rows that both have one dtype",
    "Identity": "created for the outputs of functions",
}
_LOOPS = {
    "While": "created by tf.while_loop from two functions",
    "StatelessWhile": "the same, if neither function has state",
}
_PASS_GRADIENTS_ON = {
    "Identity": "the gate of optimizers, which delays gradients until all gradients of an op are computed",
}
_COPY = {
    "Identity": "created for the outputs of functions and loops",
}
_OPTIONAL = "OptionalFromValue"  # made of what the gradient of a branch takes from the branch
_UNIQUE = "Unique"  # its first output has each value once
_GROUP_CONTROL_INPUTS = {
    "NoOp": "created by tf.group; a gate may wait for it instead of the gradients",
}
_HAVE_BRANCHES = {
    "If": "created by tf.cond from two functions, then_branch and else_branch",
    "StatelessIf": "created by tf.cond if neither function has state",
}
_HAVE_MANY_BRANCHES = {
    "Case": "created by tf.switch_case from its functions, branches",
    "StatelessCase": "the same, if none of the functions has state",
}
# The attributes that are the functions of an op.
_FUNCTIONS = {
    **dict.fromkeys(CALLS, ("f",)),
    **dict.fromkeys(_LOOPS, ("cond", "body")),
    **dict.fromkeys(_HAVE_BRANCHES, ("then_branch", "else_branch")),
}
_CALL_FUNCTIONS = (*_FUNCTIONS, *_HAVE_MANY_BRANCHES)
# Prefixes of TensorFlow op types, which all versions of an op share.
_FED = {
    "Placeholder": "its value is fed",
}
_KEEP_NO_STATE_OF_STEPS = {
    "IteratorGetNext": "the elements of an iterator do not depend on the step",
    "TensorArray": "the array exists only during one run",
}
_READ_TENSORFLOW_TABLES = {
    "LookupTableFind": "returns the same in every step if the table never changes",
    "LookupTableSize": "returns the same in every step if the table never changes",
}
_FILLED_ONCE = {
    "HashTable": "only its initializer fills the table",
}


def is_of_library(op: tf.Operation) -> bool:
    """Returns whether an op is one of the library's."""
    return op.type.startswith(_PREFIX)


def operation(op: Any) -> Any:
    """Returns the op of a gradient function's argument; gradient tapes pass a stand-in with its tensors.

    For an op that was executed eagerly the stand-in is all there is, also in a function that a tape traces
    to compute a Jacobian.
    """
    is_all_there_is = isinstance(op, tf.Operation) or not hasattr(op.outputs[0], "graph")
    return op if is_all_there_is else op.outputs[0].op


def inputs_of(op: tf.Operation) -> dict[str, Any]:
    """Returns the inputs of an op by the names of its registration, in the order of its inputs.

    Args:
      op: An op of any kind, or the stand-in that a gradient tape passes to gradient functions.

    Returns:
      For each name a tensor, or a list of tensors if the registration says that the input is a list.
    """
    op = operation(op)
    return _by_name(op, _definition(op).input_arg, op.inputs)


def init_of(op: tf.Operation) -> tuple[tf.Tensor, tf.Operation] | None:
    """Returns the tensor of an op that runs `sok.Init` and the constant with its arguments, or None.

    The op is one that `initialize.py` creates: the check whether Init has run, or the merge of its two sides.
    """
    check = op
    if op.type == "Merge":
        switch = inputs_of(op)["inputs"][-1].op
        check = inputs_of(switch)["pred"].op if switch.type == "Switch" else op
    if check.type != INIT_HAS_RUN:
        return None
    return op.outputs[0], inputs_of(check)["arguments"].op


def outputs_of(op: tf.Operation) -> dict[str, Any]:
    """Returns the outputs of an op by name, like `inputs_of`."""
    op = operation(op)
    return _by_name(op, _definition(op).output_arg, op.outputs)


def output_name(tensor: tf.Tensor) -> tuple[str, int]:
    """Returns the name of the output that a tensor is or belongs to, and the tensor's position in it."""
    outputs = outputs_of(tensor.op).items()
    places = [(name, place) for name, output in outputs for place in range(_count(output))]
    return places[tensor.value_index]


def gradients_of_outputs(op: tf.Operation, gradients: Sequence[Any]) -> dict[str, Any]:
    """Returns the arguments of a gradient function by the names of the outputs; `op` as in `inputs_of`."""
    op = operation(op)
    return _by_name(op, _definition(op).output_arg, gradients)


def in_order_of_inputs(op: tf.Operation, gradients: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Returns the result of an op's gradient function.

    Args:
      op: As in `inputs_of`.
      gradients: Maps names of inputs to the gradients of their tensors. Other inputs have no gradients.

    Returns:
      A gradient or None for each input tensor of the op.
    """
    ordered: list[Any] = []
    for name, taken in inputs_of(op).items():
        ordered += gradients.get(name, [None] * _count(taken))
    return ordered


def handles_of(op: tf.Operation) -> list[tf.Tensor]:
    """Returns the table handles that a group's op takes, in the group's order; [] for other ops."""
    op = operation(op)
    while op.type in _LEAD_TO_HANDLES:
        op = inputs_of(op)[_LEAD_TO_HANDLES[op.type]].op
    inputs = inputs_of(op) if is_of_library(op) else {}
    return [inputs["handle"]] if op.type == ROWS_OF_BRANCHES else inputs.get("handles", [])


def lookup_of_outputs(op: tf.Operation) -> tf.Operation | None:
    """Returns the op that takes the ids of a group's lookup, given the op that gives its outputs.

    The result has the inputs and attributes of `SokGroupLookup`. None if `op` gives no outputs of a lookup,
    or if the ids come to it through a batch that is held for a later step.
    """
    if op.type == GROUP_LOOKUP:
        return op
    if op.type not in _TAKE_LOOKUPS:
        return None
    source = inputs_of(op)[_TAKE_LOOKUPS[op.type]].op
    return source if source.type in _ROUTE_OR_MERGE else None


def tables_of(graph: tf.Graph) -> list[tf.Operation]:
    """Returns the ops of a graph that create table handles."""
    return [op for op in graph.get_operations() if op.type == TABLE]


def is_passed_on_in_branch(op: tf.Operation) -> bool:
    """Returns whether an op gives outputs of a lookup whose gradients another op computes: see IN_BRANCH."""
    consumers = outputs_of(op)["outputs"][0].consumers()
    return any(
        one.type == "IdentityN" and one.node_def.attr["_gradient_op_type"].s == IN_BRANCH.encode()
        for one in consumers
    )


def trains_tables(graph: tf.Graph) -> bool:
    """Returns whether a graph, or a function in it, has an op that takes a step of a table's optimizer."""
    return any(op.type in _TRAIN for op in graph.get_operations()) or any(
        node.op in _TRAIN for function in functions_of_graph(graph).values() for node in function.node_def
    )


def inputs_of_restore(graph: tf.Graph, name: str, which: str) -> list[tf.Tensor]:
    """Returns the tensors that say what of tables the op `name` restores, each once.

    Args:
      graph: The graph.
      name: The name of an op that restores tables, of a Saver.
      which: "optimizers" or "counts".
    """
    needed = ops_needed_by([graph.get_operation_by_name(name)])
    found = [inputs_of(op)[which] for op in needed if op.type == CHECK_CHECKPOINT]
    return list({tensor.name: tensor for tensor in found}.values())


def optimizers_of_restore(graph: tf.Graph, name: str) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns the handles of the tables that the op `name` restores, and what tells each one's optimizer."""
    found = [
        inputs_of(op)
        for op in ops_needed_by([graph.get_operation_by_name(name)])
        if op.type == CHECK_CHECKPOINT
    ]
    return [pair for inputs in found for pair in zip(inputs["handles"], inputs["trained_by"])]


def tables_behind_nodes(graph: tf.compat.v1.GraphDef, names: Sequence[str]) -> list[str]:
    """Returns the names of the nodes that create table handles and that the nodes `names` depend on."""
    nodes = {node.name: node for node in graph.node}

    def known(inputs: Iterable[str]) -> list[str]:
        found = (name.split(":")[0].lstrip("^") for name in inputs)
        return [name for name in found if name in nodes]

    reached = _reached(known(names), lambda name: known(nodes[name].input))
    return sorted(name for name in reached if nodes[name].op == TABLE)


def outer_handle(handle: tf.Tensor) -> tf.Tensor:
    """Returns a handle as it is outside the functions, loops and branches that captured it."""
    while True:
        captured = _captured(handle)
        if captured is not None:
            handle = captured
        elif handle.op.type in _PASS_HANDLES_ON:
            (handle,) = (tensor for tensor in handle.op.inputs if tensor.dtype == tf.resource)
        else:
            return handle


def table_of(handle: tf.Tensor) -> tf.Operation:
    """Returns the op that created a handle, outside the functions, loops and branches that captured it."""
    return outer_handle(handle).op


def is_handle(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is the handle of one of the library's tables."""
    return tensor.dtype == tf.resource and is_of_library(table_of(tensor))


def table_names(op: tf.Operation) -> list[str]:
    """Returns the sorted names of a group's tables, given any of its ops; [] if they are unknown."""
    return sorted(table_of(handle).name for handle in handles_of(op))


def needs_no_row(op: tf.Operation) -> bool:
    """Returns whether an op is the part of a lookup that needs only the ids and may run before the step."""
    return op.type in _ROUTE_OR_MERGE


def are_request_words(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is the words of requests, sent or received, on the device of their group."""
    names = {GROUP_ROUTE: "words", EXCHANGE: "received"}
    return output_name(tensor)[0] == names.get(tensor.op.type)


def frame_entered_by(op: tf.Operation) -> str | None:
    """Returns the name of the loop whose input an op is; None for other ops and for loops inside loops."""
    if op.type not in _ENTERS_LOOPS:
        return None
    context = op._get_control_flow_context()
    around = None if context is None else context.outer_context
    is_inner = around is not None and around.GetWhileContext() is not None
    return None if is_inner else op.get_attr("frame_name").decode()


def enters_loop(op: tf.Operation) -> bool:
    """Returns whether an op takes a value into a loop that is no function."""
    return op.type in _ENTERS_LOOPS


def loops_around(op: tf.Operation) -> list[tf.Operation]:
    """Returns an op that takes a value into each loop that is no function and that an op is in.

    The innermost loop is the first.
    """
    found, pending, seen = [], [op], {op}
    while pending:
        op = pending.pop()
        sources = [tensor.op for tensor in op.inputs]
        if enters_loop(op):
            found.append(op)
            pending = []
        elif op.type in _LEAVES_LOOPS:
            continue
        else:
            sources += op.control_inputs
        new = [source for source in sources if source not in seen]
        seen.update(new)
        pending += new
    return found


def leaves_loop(indices: tf.Tensor) -> bool:
    """Returns whether row numbers of a gradient come, alone or joined to others, out of a loop.

    Loops that are functions give no row numbers.
    """
    ops = [indices.op]
    while ops and all(op.type not in _LEAVES_LOOPS for op in ops):
        ops = [tensor.op for op in ops if op.type in _JOIN_SLICES for tensor in op.inputs]
    return bool(ops)


def is_conditional(op: tf.Operation) -> bool:
    """Returns whether an op runs one of several functions, its branches."""
    return op.type in _HAVE_BRANCHES or op.type in _HAVE_MANY_BRANCHES


def is_loop(op: tf.Operation) -> bool:
    """Returns whether an op is a loop whose condition and body are functions."""
    return op.type in _LOOPS


def functions_called_by(
    nodes: Iterable[tf.compat.v1.NodeDef], functions: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns those of the functions, definitions by name, that nodes lead to."""

    def called(nodes: Iterable[tf.compat.v1.NodeDef]) -> list[str]:
        names = (name for node in nodes for name in (node.op, *_functions_of(node)))
        return [name for name in names if name in functions]

    reached = _reached(called(nodes), lambda name: called(functions[name].node_def))
    return {name: functions[name] for name in reached}


def ops_of_library_called_by(op: tf.Operation, functions: Mapping[str, Any]) -> list[str]:
    """Returns the sorted types of the library's ops in those of the functions that an op leads to."""
    called = functions_called_by([op.node_def], functions).values()
    return sorted({node.op for one in called for node in one.node_def if node.op.startswith(_PREFIX)})


def called_in_place(op: tf.Operation, functions: Mapping[str, Any]) -> list[str]:
    """Returns the names of the functions that a call, a conditional or a loop runs; [] for other ops.

    Those of a conditional are in the order of its branches; those of a loop are its condition and its body.
    """
    if op.type in functions:
        return [op.type]
    if op.type in _HAVE_MANY_BRANCHES:
        return [one.name for one in op.get_attr("branches")]
    return [op.get_attr(name).name for name in _FUNCTIONS.get(op.type, ())]


def is_left_for_gradients(op: tf.Operation) -> bool:
    """Returns whether an op gives a gradient's branch what one of the library's ops left in a branch."""
    return op.type == _OPTIONAL and any(is_of_library(tensor.op) for tensor in op.inputs)


def is_copy(op: tf.Operation) -> bool:
    """Returns whether an op returns what it takes."""
    return op.type in _COPY


def before_copies(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor of which a tensor is a copy, or the tensor itself."""
    while is_copy(tensor.op):
        (tensor,) = tensor.op.inputs
    return tensor


def calls_loops(op: tf.Operation) -> bool:
    """Returns whether an op that is no loop calls functions that have loops, or call such functions."""
    if is_loop(op) or not _functions_of(op.node_def):
        return False
    called = functions_called_by([op.node_def], functions_of_graph(op.graph))
    return any(node.op in _LOOPS for one in called.values() for node in one.node_def)


def reads_state_of_steps(op: tf.Operation) -> bool:
    """Returns whether an op is fed or reads state that steps change, so that it must run in the step.

    Only the op itself is checked, not the ops that it depends on.
    """
    if _begins_as(op, _FED):
        return True
    if _begins_as(op, _KEEP_NO_STATE_OF_STEPS):
        return False
    if _begins_as(op, _READ_TENSORFLOW_TABLES) and _is_filled_once(inputs_of(op)["table_handle"]):
        return False
    if op.type in _CALL_FUNCTIONS:
        # Their functions read what they take.
        return any(tensor.dtype == tf.resource and not _is_filled_once(tensor) for tensor in op.inputs)
    if op.type in _PASS_HANDLES_ON:
        # The op that takes the handle from here reads.
        return False
    # Variables are resources or, in their old form, references.
    return any(tensor.dtype == tf.resource for tensor in op.inputs) or any(
        tensor.dtype._is_ref_dtype for tensor in op.outputs
    )


def _is_filled_once(handle: tf.Tensor) -> bool:
    return _begins_as(table_of(handle), _FILLED_ONCE)


@dataclasses.dataclass(frozen=True)
class GroupGradient:
    """The gradients of a group's tables, computed by one op.

    Attributes:
      op: The op. Its outputs are, for each table, distinct row numbers and the sum of each row's gradients.
      divisor: The divisor that averages the sums over ranks; 1 if they are not averaged.
    """

    op: tf.Operation
    divisor: int

    @property
    def is_over_ranks(self) -> bool:
        """Whether the sums include the gradients of all ranks."""
        return self.op.type == GROUP_SUM

    @property
    def of_servers(self) -> list[GroupGradient]:
        """The gradients on each parameter server that the op joins; without servers this one alone."""
        if self.op.type != GROUP_JOIN:
            return [self]
        ops = dict.fromkeys(indices.op for indices in inputs_of(self.op)["part_indices"])
        return [GroupGradient(op, self.divisor) for op in ops]

    @property
    def lookup(self) -> tf.Tensor:
        """The lookup's output for its gradient. Once it is computed, the lookup has read its rows."""
        return inputs_of(self.op)["served" if self.is_over_ranks else "plan"]

    @property
    def handles(self) -> list[tf.Tensor]:
        """The handles of the group's tables."""
        return handles_of(self.op)

    @property
    def reads_rows(self) -> bool:
        """Whether the op reads rows of the tables, which it needs for gradients of weights."""
        return self.op.type == GROUP_LOOKUP_GRAD and self.op.get_attr("num_weights") > 0


def untouched_gradient(gradient: tf.IndexedSlices, handle: tf.Tensor) -> tuple[GroupGradient, int] | None:
    """Finds the group gradient that a table's gradient comes from, if nothing has changed it since.

    Args:
      gradient: The gradient of the table, as passed to an optimizer.
      handle: The table's handle.

    Returns:
      The group's gradient and the table's position in the group. None if `gradient` has another origin or was
      changed: only gates and the division that averages over ranks may follow the op that computes it.
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


def lookups_behind(gradient: tf.IndexedSlices) -> tuple[list[tf.Tensor], int] | None:
    """Returns a lookup's output for its gradient on each server, and the table's position in its group.

    None if `gradient`, of a table, is not the gradient of one lookup's group. Its values may have been
    changed, for example clipped.
    """
    indices, _ = _before_gates(gradient.indices)
    if indices.op.type not in _GIVE_GRADIENTS or output_name(indices)[0] != "indices":
        return None
    lookups = [group.lookup for group in GroupGradient(indices.op, 1).of_servers]
    return lookups, output_name(indices)[1]


def names_each_row_once(indices: tf.Tensor) -> bool:
    """Returns whether row numbers are known to be distinct, as in the gradient of one group, gated or not."""
    while indices.op.type in (*_PASS_GRADIENTS_ON, ROWS_OF_BRANCHES):
        indices = indices.op.inputs[-1]
    return indices.op.type in _GIVE_GRADIENTS or (indices.op.type == _UNIQUE and indices.value_index == 0)


def comes_from_tables(indices: tf.Tensor) -> bool:
    """Returns whether row numbers depend on those of tables' gradients, directly or through other ops."""
    return any(op.type in (*_GIVE_GRADIENTS, ROWS_OF_BRANCHES) for op in ops_behind(indices))


def tables_of_gradient(indices: tf.Tensor) -> list[tf.Operation]:
    """Returns the ops that create the handles of the tables whose row numbers `indices` depend on."""
    tensors = [indices]
    for op in ops_behind(indices):
        if not is_of_library(op):
            tensors += op.inputs
            captured = _captured(op.outputs[0]) if op.type == "Placeholder" else None
            tensors += [] if captured is None else [captured]
    tables = {}
    for tensor in tensors:
        if tensor.op.type in (*_GIVE_GRADIENTS, ROWS_OF_BRANCHES) and output_name(tensor)[0] == "indices":
            table = table_of(handles_of(tensor.op)[output_name(tensor)[1]])
            tables[table.name] = table
    return list(tables.values())


def is_averaged(values: tf.Tensor) -> bool:
    """Returns whether a gradient went through the division that averages over ranks, changed since or not."""
    return any(op.type == DIVIDE_GRADIENTS for op in ops_behind(values))


def ops_behind(tensor: tf.Tensor) -> Iterator[tf.Operation]:
    """Yields the op of a tensor and the ops that it depends on, each once.

    It stops at the library's ops: a table's gradient starts at such an op, and behind it is the whole model.
    """

    def sources(op: tf.Operation) -> list[tf.Operation]:
        outer = _captured(op.outputs[0]) if op.type == "Placeholder" else None
        if outer is not None and hasattr(outer, "graph"):
            return [outer.op]
        return [] if is_of_library(op) else [tensor.op for tensor in op.inputs]

    return _reached([tensor.op], sources)


def ops_needed_by(ops: Iterable[tf.Operation]) -> Iterator[tf.Operation]:
    """Yields the ops and all that they depend on, by inputs and control inputs, each once."""
    return _reached(ops, lambda op: [*(tensor.op for tensor in op.inputs), *op.control_inputs])


def handles_needed_by(op: tf.Operation) -> list[tf.Tensor]:
    """Returns the handles of the rows of tables that an op depends on, by inputs and control inputs."""
    return [outputs_of(needed)["handle"] for needed in ops_needed_by([op]) if needed.type == TABLE]


def nodes_of_branches(op: tf.Operation) -> list[tf.compat.v1.NodeDef]:
    """Returns the nodes of both functions of a conditional; [] for other ops."""
    if op.type not in _HAVE_BRANCHES:
        return []
    branches = {op.get_attr(name).name for name in ("then_branch", "else_branch")}
    functions = functions_of_graph(op.graph)
    return [node for name in functions if name in branches for node in functions[name].node_def]


def functions_of_graph(graph: tf.Graph) -> dict[str, Any]:
    """Returns the definitions of a graph's functions by name."""
    return {function.signature.name: function for function in graph.as_graph_def().library.function}


def _functions_of(node: tf.compat.v1.NodeDef) -> list[str]:
    """Returns the names of the functions that are a node's attributes."""
    values = node.attr.values()
    functions = [value.func for value in values if value.HasField("func")]
    functions += [function for value in values if value.HasField("list") for function in value.list.func]
    return [function.name for function in functions]


def _reached(first: Iterable[_T], sources: Callable[[_T], Iterable[_T]]) -> Iterator[_T]:
    """Yields the first ones and all that `sources` leads to from them, each once."""
    pending, seen = list(first), set()
    while pending:
        one = pending.pop()
        if one not in seen:
            seen.add(one)
            yield one
            pending += sources(one)


def _definition(op: Any) -> Any:
    return op.op_def if isinstance(op, tf.Operation) else op_definition(op.type)


def _begins_as(op: tf.Operation, types: Mapping[str, str]) -> bool:
    return op.type.startswith(tuple(types))


def _count(argument: Any) -> int:
    """Returns the number of tensors of an input or an output."""
    return len(argument) if isinstance(argument, list) else 1


def _by_name(op: tf.Operation, arguments: Sequence[Any], tensors: Sequence[Any]) -> dict[str, Any]:
    """Groups `tensors`, one value per tensor, by the names of `arguments`: an OpDef's inputs or outputs."""
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
    """Returns the outer tensor that a function has captured as `tensor`; None if it is not a capture."""
    if not isinstance(tensor.graph, func_graph.FuncGraph):
        return None
    return next((outer for outer, inner in tensor.graph.captures if inner is tensor), None)


def _before_gates(tensor: tf.Tensor) -> tuple[tf.Tensor, int]:
    """Returns the tensor before gates and the division that averages over ranks, and the divisor.

    Gates are identities that wait only for the op whose output they pass on. If an op in between waits for
    another op, or divides a second time, the result is the tensor itself and 1.
    """
    source, between = tensor, []
    while source.op.type in _PASS_GRADIENTS_ON or source.op.type == DIVIDE_GRADIENTS:
        between.append(source.op)
        (source,) = source.op.inputs
    divisors = [op.get_attr("divisor") for op in between if op.type == DIVIDE_GRADIENTS]
    # With several ranks the op that computes gradients of weights is an input of the sums.
    awaited_anyway = {source.op, *(taken.op for taken in source.op.inputs), *between}
    if len(divisors) > 1 or not all(_waits_only_for(op, awaited_anyway) for op in between):
        return tensor, 1
    return source, divisors[0] if divisors else 1


def _waits_only_for(op: tf.Operation, awaited: set[tf.Operation]) -> bool:
    return all(
        control in awaited or (control.type in _GROUP_CONTROL_INPUTS and _waits_only_for(control, awaited))
        for control in op.control_inputs
    )
