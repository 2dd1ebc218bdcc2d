"""Cuts the ops on a batch in two parts: those that depend only on the batch, and those that need the step.

The first part may run one step ahead of the second. Tensors that pass from the first part to the second are
held in between. Loops are run as a whole or not at all: at the end of the data, ops on the batch get dead
tensors, as in a branch that is not taken. If only some inputs of a loop are dead and its ops are on several
devices, the loop never ends: one device begins the next iteration and waits for tensors that another device
does not send. So no input of a loop may arrive before the batch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.compat.tensors import reference
from sparse_operation_kit.graphs import graph_ops


class StepCut:
    """The cut through the ops that a function has created on a batch.

    An op belongs to the step if it reads state that steps change (variables, rows of tables, fed values), if
    it has an input from an op of the step, or if it waits for an op of the step that uses the batch. All
    other ops on the batch run ahead.

    Attributes:
      held: Tensors that run ahead and that the step needs, each once.
      waits: Ops that run ahead and were control inputs of ops of the step, such as assertions.
    """

    def __init__(
        self, batch: Sequence[tf.Tensor], made: Sequence[tf.Operation], results: Sequence[tf.Tensor]
    ) -> None:
        """Finds the cut.

        Args:
          batch: The tensors of the batch.
          made: The ops that the function has created, in order of creation.
          results: The tensors that it has returned.

        Raises:
          ValueError: Ids, weights or `training` of a lookup depend on the step's state or wait for the step;
            or the cut goes through a loop or a branch.
        """
        self._of_step: set[tf.Operation] = set()
        self._of_batch = {tensor.op for tensor in batch}
        self.held: list[tf.Tensor] = []
        self.waits: list[tf.Operation] = []
        self._inputs: list[tuple[tf.Operation, int, tf.Tensor]] = []
        self._waiting: list[tf.Operation] = []
        self._classify()
        keep_loops_whole([tensor.op for tensor in batch[:1]], made, self._runs_ahead)
        self._classify()
        known: set[Any] = set()
        for op in made:
            if op in self._of_step:
                self._cut_inputs(op, known)
            elif op in self._of_batch:
                self._check_ahead(op)
        for tensor in results:
            self._hold(tensor, known)

    def rejoin(self, taken: Sequence[tf.Tensor], results: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Makes the ops of the step use the tensors that were held.

        Args:
          taken: For each tensor of `held` its replacement.
          results: The `results` given to the constructor.

        Returns:
          The results, with held tensors replaced.
        """
        place = {reference(tensor): instead for tensor, instead in zip(self.held, taken)}
        for op, index, tensor in self._inputs:
            op._update_input(index, place[reference(tensor)])
        for op in self._waiting:
            remaining = [control for control in op.control_inputs if not self._runs_ahead(control)]
            op._remove_all_control_inputs()
            op._add_control_inputs(remaining)
        return [place.get(reference(tensor), tensor) for tensor in results]

    def _classify(self) -> None:
        ops = [
            (op, [tensor.op for tensor in op.inputs], op.control_inputs)
            for op in tf.compat.v1.get_default_graph().get_operations()
        ]
        # Ops are listed in order of creation, so an op comes after the ops that produce its inputs. Loops
        # that are no functions are the exception: what an iteration passes to the next is made after its use.
        known = -1
        while known != len(self._of_batch) + len(self._of_step):
            known = len(self._of_batch) + len(self._of_step)
            for op, inputs, controls in ops:
                self._classify_op(op, inputs, controls)

    def _classify_op(
        self, op: tf.Operation, inputs: Sequence[tf.Operation], controls: Sequence[tf.Operation]
    ) -> None:
        if not self._of_batch.isdisjoint(inputs) or not self._of_batch.isdisjoint(controls):
            self._of_batch.add(op)
        if not graph_ops.needs_no_row(op) and (
            graph_ops.reads_state_of_steps(op)
            or not self._of_step.isdisjoint(inputs)
            or self._in_step(controls)
        ):
            self._of_step.add(op)

    def _in_step(self, ops: Sequence[tf.Operation]) -> list[tf.Operation]:
        """Returns the ops that belong to the step and use the batch."""
        return [op for op in ops if op in self._of_step and op in self._of_batch]

    def _runs_ahead(self, op: tf.Operation) -> bool:
        return op in self._of_batch and op not in self._of_step

    def _hold(self, tensor: tf.Tensor, known: set) -> bool:
        """Adds a tensor to `held` if its op runs ahead; returns whether it does."""
        if not self._runs_ahead(tensor.op):
            return False
        if reference(tensor) not in known:
            known.add(reference(tensor))
            self.held.append(tensor)
        return True

    def _cut_inputs(self, op: tf.Operation, known: set) -> None:
        for index, tensor in enumerate(op.inputs):
            if not self._hold(tensor, known):
                continue
            self._check_not_in_context(op, tensor)
            self._inputs.append((op, index, tensor))
        ahead = [control for control in op.control_inputs if self._runs_ahead(control)]
        if ahead:
            self._check_not_in_context(op, ahead[0])
            self.waits += ahead
            self._waiting.append(op)

    def _check_not_in_context(self, op: tf.Operation, used: tf.Tensor | tf.Operation) -> None:
        if op._get_control_flow_context() is not None:
            raise ValueError(
                f"LookupPrefetch: '{op.name}' is in a loop or a branch that uses '{used.name}' of the "
                "batch and also reads state that a step changes; do that outside of look_up"
            )

    def _check_ahead(self, op: tf.Operation) -> None:
        if not graph_ops.needs_no_row(op):
            return
        late = [tensor.name for tensor in op.inputs if tensor.op in self._of_step]
        late += [control.name for control in self._in_step(op.control_inputs)]
        if late:
            tables = [handle.op.name for handle in graph_ops.handles_of(op)]
            raise ValueError(
                f"LookupPrefetch: ids, weights or `training` of a lookup in embedding variables {tables} "
                f"depend on '{late[0]}', which is known only when the step runs"
            )


_LOWERED = "_lower_using_switch_merge"
_NOT_INLINED = "_noinline"


def keep_loops_whole(
    batch: Sequence[tf.Operation], made: Sequence[tf.Operation], runs_ahead: Callable[[tf.Operation], bool]
) -> None:
    """Makes loops that run ahead start with the batch.

    Args:
      batch: The op whose outputs are the batch; empty if the batch has no tensors.
      made: The ops to search for loops.
      runs_ahead: Whether an op depends on the batch and may run ahead of the step.
    """
    frames = {graph_ops.frame_entered_by(op) for op in made if runs_ahead(op)} - {None}
    for op in made:
        ahead = runs_ahead(op)
        if graph_ops.frame_entered_by(op) in frames or (ahead and graph_ops.is_loop(op)):
            op._add_control_inputs(list(batch))
        elif ahead and graph_ops.calls_loops(op):
            _run_as_one(op)


def _run_as_one(op: tf.Operation) -> None:
    """Keeps TensorFlow from inlining the functions that an op calls.

    The op is then on the CPU, like the batch. So are the ops of its functions, unless they name a device.
    """
    place = tf.DeviceSpec.from_string(op.device).replace(device_type="CPU", device_index=0)
    op._set_device(place.to_string())
    op._set_attr(_LOWERED, tf.compat.v1.AttrValue(b=False))
    if op.type not in graph_ops.CALLS:
        return
    called = op.get_attr("f").name
    functions = op.graph.as_graph_def().library.function
    with_whole = tf.compat.v1.GraphDef()
    whole = with_whole.library.function.add()
    whole.CopyFrom(next(function for function in functions if function.signature.name == called))
    whole.signature.name = op.graph.unique_name(called + "_whole")
    whole.attr[_NOT_INLINED].b = True
    tf.graph_util.import_graph_def(with_whole, name="")
    op._set_attr("f", tf.compat.v1.AttrValue(func=tf.compat.v1.NameAttrList(name=whole.signature.name)))
