"""Cuts a graph that works on one batch in two: what a batch alone decides, and what needs the step's state.

The first part may run a step ahead of the second. Tensors that go from one to the other are held in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.core import graph_ops


class StepCut:
    """Where the ops that a function has made on a batch are cut.

    An op belongs to the step if it reads state that steps change (variables, rows of tables, what is fed), or
    takes what such an op gives, or waits for one that works on the batch. All others on the batch run ahead.

    Attributes:
      held: Tensors of the batch that the step needs, each once.
      waits: Ops that run ahead and that ops of the step waited for, such as assertions.
    """

    def __init__(
        self, batch: Sequence[tf.Tensor], made: Sequence[tf.Operation], results: Sequence[tf.Tensor]
    ) -> None:
        """Finds the cut.

        Args:
          batch: The tensors of the batch.
          made: The ops that the function has made, in the order of their making.
          results: The tensors that it has returned.

        Raises:
          ValueError: Ids of a lookup, or what goes with them, depend on the step's state or wait for the
            step; or the cut goes through a loop or a branch.
        """
        self._of_step: set[tf.Operation] = set()
        self._of_batch = {tensor.op for tensor in batch}
        self.held: list[tf.Tensor] = []
        self.waits: list[tf.Operation] = []
        self._inputs: list[tuple[tf.Operation, int, tf.Tensor]] = []
        self._waiting: list[tf.Operation] = []
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
        """Lets the step work on what was held.

        Args:
          taken: For each of `held` the tensor in its place.
          results: As given to the constructor.

        Returns:
          The results, of the step.
        """
        place = {tensor.ref(): instead for tensor, instead in zip(self.held, taken, strict=True)}
        for op, index, tensor in self._inputs:
            op._update_input(index, place[tensor.ref()])
        for op in self._waiting:
            remaining = [control for control in op.control_inputs if not self._runs_ahead(control)]
            op._remove_all_control_inputs()
            op._add_control_inputs(remaining)
        return [place.get(tensor.ref(), tensor) for tensor in results]

    def _classify(self) -> None:
        # Ops are listed in the order of their making: an op comes after those whose outputs it takes.
        for op in tf.compat.v1.get_default_graph().get_operations():
            inputs = [tensor.op for tensor in op.inputs]
            controls = op.control_inputs
            if not self._of_batch.isdisjoint(inputs) or not self._of_batch.isdisjoint(controls):
                self._of_batch.add(op)
            if not graph_ops.needs_no_row(op) and (
                graph_ops.reads_state_of_steps(op)
                or not self._of_step.isdisjoint(inputs)
                or self._in_step(controls)
            ):
                self._of_step.add(op)

    def _in_step(self, ops: Sequence[tf.Operation]) -> list[tf.Operation]:
        """Those that are part of the step and of the batch."""
        return [op for op in ops if op in self._of_step and op in self._of_batch]

    def _runs_ahead(self, op: tf.Operation) -> bool:
        return op in self._of_batch and op not in self._of_step

    def _hold(self, tensor: tf.Tensor, known: set) -> bool:
        """Notes a tensor if it has to be held; returns whether it has."""
        if not self._runs_ahead(tensor.op):
            return False
        if tensor.ref() not in known:
            known.add(tensor.ref())
            self.held.append(tensor)
        return True

    def _cut_inputs(self, op: tf.Operation, known: set) -> None:
        for index, tensor in enumerate(op.inputs):
            if not self._hold(tensor, known):
                continue
            if op._get_control_flow_context() is not None:
                raise ValueError(
                    f"LookupPrefetch: '{op.name}' is in a loop or a branch that takes '{tensor.name}' of the "
                    "batch and reads what a step changes; do that outside of the function"
                )
            self._inputs.append((op, index, tensor))
        ahead = [control for control in op.control_inputs if self._runs_ahead(control)]
        if ahead:
            self.waits += ahead
            self._waiting.append(op)

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
