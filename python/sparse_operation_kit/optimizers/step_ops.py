"""The ops that one call of `apply_gradients` makes for embedding variables.

Where the gradient of a lookup group goes to the optimizer as `tf.gradients` returns it, one op sums it and
updates the rows of all tables of the group: `SokGroupLookupApplyGradients`, or over ranks
`SokGroupSumApplyGradients`, which also takes the division in that averages gradients over ranks. The sums
then never lie in memory. Where something else comes in between (clipping, scaling, sums of several losses),
each table gets a `SokApplyGradients`. Both compute the same bits.

The ops that give gradients as tensors stay in the graph for those who read them, before `apply_gradients` or
after it: over ranks what arrived is summed once more then, and nothing is exchanged for it. Gradients of
weights read rows as they are before the update, so the op that gives them always runs before it. It makes
only what is read in a run, mostly nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core import global_step, graph_ops
from sparse_operation_kit.core.graph_ops import GroupGradient
from sparse_operation_kit.optimizers.table_update import apply_to_table

_fuses = contextvars.ContextVar("sok_fuses_updates", default=True)


@contextlib.contextmanager
def fused_updates(enabled: bool) -> Iterator[None]:
    """Inside it, says whether `apply_gradients` may train tables in the op that sums their gradients.

    That is faster, gives the same bits, and is the default. Without it every table has an update op of its
    own, and gradients exist as tensors.

    Args:
      enabled: whether it may.
    """
    token = _fuses.set(bool(enabled))
    try:
        yield
    finally:
        _fuses.reset(token)


class _TableStep(NamedTuple):
    """The step of one table of a group, by its position there."""

    variable: tf.Variable
    table: int
    hyper: tf.Tensor


class StepOps:
    """The update ops of one call of `apply_gradients`.

    Which tables of a group take part is known only when the call is over. Until then they have a gate, an op
    that does nothing, and runs after the updates once `finish` has made them.
    """

    def __init__(self) -> None:
        self._fused: dict[tuple[GroupGradient, str], list[_TableStep]] = {}
        self._gate: Any = None

    def update(
        self, variable: tf.Variable, gradient: tf.IndexedSlices, kernel: str, hyper: tf.Tensor
    ) -> tf.Operation:
        """The op after which a table has taken its step.

        The arguments are those of `apply_to_table`.
        """
        found = graph_ops.untouched_gradient(gradient, variable.handle) if _fuses.get() else None
        if found is None or not _can_be_awaited(found[0]):
            return apply_to_table(variable, gradient, kernel, hyper)
        group, table = found
        self._fused.setdefault((group, kernel), []).append(_TableStep(variable, table, hyper))
        if self._gate is None:
            self._gate = tf.no_op(name="tables")
        return self._gate

    def finish(self) -> None:
        """Makes the ops that update several tables."""
        for (group, kernel), steps in self._fused.items():
            self._gate._add_control_inputs([_updated(group, kernel, steps)])
        self._fused = {}


def _updated(group: GroupGradient, kernel: str, steps: Sequence[_TableStep]) -> tf.Operation:
    """The op that sums the gradients of a group and trains some of its tables."""
    told = global_step.told([step.variable for step in steps], after=[group.lookup])
    arguments = {
        **graph_ops.inputs_of(group.op),
        "handles": group.handles,
        "hyper": [step.hyper for step in steps],
        "dims": group.op.get_attr("dims"),
        "trained": [step.table for step in steps],
        "optimizer": kernel,
    }
    with tf.control_dependencies([*_awaited(group), *told]):
        if group.is_over_ranks:
            return native.ops.sok_group_sum_apply_gradients(**arguments, divisor=group.divisor)
        return native.ops.sok_group_lookup_apply_gradients(**arguments)


def _awaited(group: GroupGradient) -> list[tf.Operation]:
    """What an update has to wait for, besides its inputs."""
    return [group.op] if group.reads_rows else group.op.control_inputs


def _can_be_awaited(group: GroupGradient) -> bool:
    """Whether an op that is made now can wait for what that of the gradient waited for."""
    graph = tf.compat.v1.get_default_graph()
    if group.op.graph is not graph:
        return False
    # Loops drop waiting for ops outside of them.
    return not _awaited(group) or group.op._get_control_flow_context() is graph._get_control_flow_context()
