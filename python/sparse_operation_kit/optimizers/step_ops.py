"""The ops that one call of `apply_gradients` makes for embedding variables.

Where the gradient of a lookup group goes to the optimizer as `tf.gradients` returns it, one op sums it and
updates the rows of all tables of the group: `SokGroupLookupApplyGradients`. The sums then never lie in
memory. Where something comes in between (clipping, scaling, sums of several losses), and over ranks, each
table gets a `SokApplyGradients`. Both compute the same bits.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf

from sparse_operation_kit import native
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


class StepOps:
    """The update ops of one call of `apply_gradients`.

    Which tables of a group take part is known only when the call is over. Until then they have a gate, an op
    that does nothing, and runs after the updates once `finish` has made them.
    """

    def __init__(self) -> None:
        self._fused: dict[tuple[tf.Operation, str], list[tuple[int, tf.Tensor]]] = {}
        self._gate: tf.Operation | None = None

    def update(
        self, variable: tf.Variable, gradient: tf.IndexedSlices, kernel: str, hyper: tf.Tensor
    ) -> tf.Operation:
        """The op after which a table has taken its step.

        The arguments are those of `apply_to_table`.
        """
        source = _gradient_of_group(variable, gradient) if _fuses.get() else None
        if source is None:
            return apply_to_table(variable, gradient, kernel, hyper)
        op, table = source
        self._fused.setdefault((op, kernel), []).append((table, hyper))
        if self._gate is None:
            self._gate = tf.no_op(name="tables")
        return self._gate

    def finish(self) -> None:
        """Makes the ops that update several tables."""
        for (op, kernel), steps in self._fused.items():
            self._gate._add_control_inputs([_update_of_group(op, kernel, steps)])
        self._fused = {}


def _update_of_group(op: tf.Operation, kernel: str, steps: list[tuple[int, tf.Tensor]]) -> tf.Operation:
    """Does what the SokGroupLookupGrad `op` and the updates of its tables do."""
    num_tables = op.get_attr("num_tables")
    with tf.control_dependencies(op.control_inputs):
        return native.ops.sok_group_lookup_apply_gradients(
            handles=op.inputs[:num_tables],
            plan=op.inputs[num_tables],
            gradients=op.inputs[num_tables + 1 :],
            hyper=[hyper for _, hyper in steps],
            dims=op.get_attr("dims"),
            trained=[table for table, _ in steps],
            optimizer=kernel,
        )


def _gradient_of_group(variable: tf.Variable, gradient: tf.IndexedSlices) -> tuple[tf.Operation, int] | None:
    """The SokGroupLookupGrad whose gradient of `variable` this is, and the variable's place in it.

    None where it is another gradient, or where the op has more to give than gradients of rows.
    """
    values, indices = _without_gates(gradient.values), _without_gates(gradient.indices)
    op = values.op
    if op.type != "SokGroupLookupGrad" or indices.op is not op:
        return None
    num_tables = op.get_attr("num_tables")
    table = indices.value_index
    is_its_gradient = (
        op.graph is tf.compat.v1.get_default_graph()
        and table < num_tables
        and values.value_index == num_tables + table
        and op.inputs[table].op is variable.handle.op
    )
    # Gradients of weights need the rows as they are before the update.
    return (op, table) if is_its_gradient and not op.get_attr("num_weights") else None


def _without_gates(tensor: tf.Tensor) -> tf.Tensor:
    """What stands in front of identities that wait for nothing but the op whose output they pass on.

    Optimizers put them there, so that a gradient is not used before all others of the same op are made.
    """
    source = tensor
    while source.op.type == "Identity":
        source = source.op.inputs[0]
    while tensor is not source:
        if not _waits_only_for(tensor.op, source.op):
            return tensor
        tensor = tensor.op.inputs[0]
    return source


def _waits_only_for(op: tf.Operation, source: tf.Operation) -> bool:
    return all(
        control is source or (control.type == "NoOp" and _waits_only_for(control, source))
        for control in op.control_inputs
    )
