"""The ops that one call of `apply_gradients` creates for embedding variables.

If the gradient of a lookup group reaches the optimizer as `tf.gradients` returned it, one op sums it and
updates the rows of all tables of the group: `SokGroupLookupApplyGradients`, or with several ranks
`SokGroupSumApplyGradients`, which also does the division that averages gradients over ranks. The sums are
then never written to memory. If the gradient was changed (clipping, scaling, sums of several losses), each
table gets a `SokApplyGradients`. Both ways give the same bits.

The ops that compute gradients as tensors stay in the graph for programs that read them, before or after
`apply_gradients`. With several ranks the received gradients are then summed once more, without another
exchange. Gradients of weights depend on the rows before the update, so the op that computes them always runs
before the update. It computes only the outputs that are read in a run, usually none.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.graphs.graph_ops import GroupGradient
from sparse_operation_kit.newer_python import set_within
from sparse_operation_kit.optimizers.table_update import apply_to_table
from sparse_operation_kit.tables import row_policies, table_parts

_fuses = contextvars.ContextVar("sok_fuses_updates", default=True)


def fused_updates(enabled: bool) -> contextlib.AbstractContextManager[None]:
    """Returns a context that enables or disables fused updates in calls of `apply_gradients`.

    A fused update trains tables in the op that sums their gradients. It is faster, gives the same bits, and
    is the default. If disabled, every table has its own update op, and gradients exist as tensors.

    Args:
      enabled: whether updates may be fused.
    """
    return set_within(_fuses, bool(enabled))


class _TableStep(NamedTuple):
    """The step of one table of a group; `table` is its position in the group."""

    variable: tf.Variable
    table: int
    hyper: tf.Tensor


class StepOps:
    """The update ops of one call of `apply_gradients`.

    Which tables of a group take part is known only at the end of the call. Until then `update` returns a
    gate, an op that does nothing; `finish` creates the updates and makes the gates wait for them.
    """

    def __init__(self) -> None:
        self._fused: dict[tuple[GroupGradient, str], list[_TableStep]] = {}
        self._gates: dict[str, tf.Operation] = {}  # by their devices

    def update(
        self, variable: tf.Variable, gradient: tf.IndexedSlices, rule: str, hyper: tf.Tensor
    ) -> tf.Operation:
        """Returns an op. When those of all tables of the call have run, the steps are done.

        The arguments are those of `apply_to_table`.
        """
        found = graph_ops.untouched_gradient(gradient, variable.handle) if _fuses.get() else None
        if found is None or not _can_be_awaited(found[0]):
            return apply_to_table(variable, gradient, rule, hyper)
        group, table = found
        steps = self._fused.setdefault((group, rule), [])
        steps.append(_TableStep(variable, table, hyper))
        # Gates are on servers in turn. TensorFlow groups what is done on a device, so each server tells the
        # worker with one message that its variables and tables are updated.
        handle = variable.handles[(len(steps) - 1) % len(variable.handles)]
        if handle.device not in self._gates:
            with table_parts.beside(handle, variable):
                self._gates[handle.device] = tf.no_op(name="tables")
        return self._gates[handle.device]

    def finish(self) -> None:
        """Creates the fused updates."""
        for (group, rule), steps in self._fused.items():
            handles = steps[0].variable.handles
            for handle, update in zip(handles, _updates(group, rule, steps)):
                # A group of fewer tables than servers has no gate on some of them.
                gate = self._gates.get(handle.device, self._gates[handles[0].device])
                gate._add_control_inputs([update])
        self._fused = {}


def _updates(group: GroupGradient, rule: str, steps: Sequence[_TableStep]) -> list[tf.Operation]:
    """Returns the ops that sum the gradients of a group and train some of its tables: one on each server."""
    of_servers = group.of_servers
    step_is_set = row_policies.tell_global_step(
        [step.variable for step in steps], after=[one.lookup for one in of_servers]
    )
    hyper: Any = [step.hyper for step in steps]
    if group.op is not of_servers[0].op:
        hyper = tf.stack(hyper)  # one tensor to each server
    updates = []
    for server, one in enumerate(of_servers):
        with table_parts.beside(one.handles[0], steps[0].variable):
            arguments = {
                **graph_ops.inputs_of(one.op),
                "hyper": tf.unstack(hyper, len(steps)) if tf.is_tensor(hyper) else hyper,
                "dims": one.op.get_attr("dims"),
                "trained": [step.table for step in steps],
                "optimizer": rule,
            }
            with tf.control_dependencies([*_awaited(one), *step_is_set[server :: len(of_servers)]]):
                if one.is_over_ranks:
                    update = native.ops.sok_group_sum_apply_gradients(**arguments, divisor=one.divisor)
                else:
                    update = native.ops.sok_group_lookup_apply_gradients(**arguments)
        updates.append(update)
    return updates


def _awaited(group: GroupGradient) -> list[tf.Operation]:
    """Returns the ops that an update has to wait for, besides its inputs."""
    return [group.op] if group.reads_rows else group.op.control_inputs


def _can_be_awaited(group: GroupGradient) -> bool:
    """Returns whether a new op can wait for the ops that the gradient's op waits for."""
    graph = tf.compat.v1.get_default_graph()
    if group.op.graph is not graph:
        return False
    # v1 loops drop control dependencies on ops outside the loop.
    return not _awaited(group) or group.op._get_control_flow_context() is graph._get_control_flow_context()
