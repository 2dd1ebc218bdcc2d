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
import dataclasses
from collections.abc import Iterator, Sequence

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.core import global_step
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


@dataclasses.dataclass(frozen=True)
class _GroupGradient:
    """What the tables of a group are trained with.

    Attributes:
      op: the SokGroupLookupGrad or SokGroupSum that gives it.
      divisor: what the sums are divided by.
    """

    op: tf.Operation
    divisor: int

    @property
    def num_tables(self) -> int:
        return self.op.get_attr("num_tables")

    @property
    def handles(self) -> Sequence[tf.Tensor]:
        """Of the group's tables; none where the op that served them is not known."""
        holder = self.op
        if self.op.type == "SokGroupSum":
            holder = self.op.inputs[0].op
            if holder.type != "SokGroupServe":
                return []
        return holder.inputs[: self.num_tables]

    @property
    def awaited(self) -> list[tf.Operation]:
        """What an update has to wait for, besides its inputs."""
        if self.op.type == "SokGroupLookupGrad" and self.op.get_attr("num_weights"):
            return [self.op]
        return self.op.control_inputs

    def updated(
        self, kernel: str, steps: Sequence[tuple[int, tf.Tensor]], variables: Sequence[tf.Variable]
    ) -> tf.Operation:
        """The op that trains `variables`: `steps` are of their positions and hyper-parameters."""
        op, num_tables = self.op, self.num_tables
        lookup = op.inputs[0 if op.type == "SokGroupSum" else num_tables]
        told = global_step.told(variables, after=[lookup])
        arguments = {
            "handles": self.handles,
            "hyper": [hyper for _, hyper in steps],
            "dims": op.get_attr("dims"),
            "trained": [table for table, _ in steps],
            "optimizer": kernel,
        }
        with tf.control_dependencies([*self.awaited, *told]):
            if op.type == "SokGroupSum":
                return native.ops.sok_group_sum_apply_gradients(
                    **arguments,
                    served=op.inputs[0],
                    received=op.inputs[1],
                    received_splits=op.inputs[2],
                    sent=op.inputs[3],
                    sent_splits=op.inputs[4],
                    divisor=self.divisor,
                )
            return native.ops.sok_group_lookup_apply_gradients(
                **arguments, plan=op.inputs[num_tables], gradients=op.inputs[num_tables + 1 :]
            )


class StepOps:
    """The update ops of one call of `apply_gradients`.

    Which tables of a group take part is known only when the call is over. Until then they have a gate, an op
    that does nothing, and runs after the updates once `finish` has made them.
    """

    def __init__(self) -> None:
        self._fused: dict[tuple[_GroupGradient, str], list[tuple[int, tf.Tensor]]] = {}
        self._variables: dict[tuple[_GroupGradient, str], list[tf.Variable]] = {}
        self._gate: tf.Operation | None = None

    def update(
        self, variable: tf.Variable, gradient: tf.IndexedSlices, kernel: str, hyper: tf.Tensor
    ) -> tf.Operation:
        """The op after which a table has taken its step.

        The arguments are those of `apply_to_table`.
        """
        found = _gradient_of_group(variable, gradient) if _fuses.get() else None
        if found is None:
            return apply_to_table(variable, gradient, kernel, hyper)
        source, table = found
        self._fused.setdefault((source, kernel), []).append((table, hyper))
        self._variables.setdefault((source, kernel), []).append(variable)
        if self._gate is None:
            self._gate = tf.no_op(name="tables")
        return self._gate

    def finish(self) -> None:
        """Makes the ops that update several tables."""
        for (source, kernel), steps in self._fused.items():
            update = source.updated(kernel, steps, self._variables[source, kernel])
            self._gate._add_control_inputs([update])
        self._fused, self._variables = {}, {}


def _gradient_of_group(
    variable: tf.Variable, gradient: tf.IndexedSlices
) -> tuple[_GroupGradient, int] | None:
    """The gradient of a group that `gradient` is a part of, and the place of `variable` in the group.

    None where it is another gradient, or something comes between it and the optimizer.
    """
    values, divisor = _source(gradient.values)
    indices, divisor_of_indices = _source(gradient.indices)
    op = values.op
    if indices.op is not op or divisor_of_indices != 1:
        return None
    if not (op.type == "SokGroupSum" or (op.type == "SokGroupLookupGrad" and divisor == 1)):
        return None
    source = _GroupGradient(op, divisor)
    table, handles = indices.value_index, source.handles
    is_its_gradient = (
        table < len(handles)
        and values.value_index == source.num_tables + table
        and handles[table].op is variable.handle.op
    )
    return (source, table) if is_its_gradient and _can_be_awaited(source) else None


def _can_be_awaited(source: _GroupGradient) -> bool:
    """Whether an op that is made now can wait for what that of the gradient waited for."""
    graph = tf.compat.v1.get_default_graph()
    if source.op.graph is not graph:
        return False
    # Loops drop waiting for ops outside of them.
    return not source.awaited or source.op._get_control_flow_context() is graph._get_control_flow_context()


def _source(tensor: tf.Tensor) -> tuple[tf.Tensor, int]:
    """What stands in front of gates and of the division that averages over ranks, and what that divides by.

    Gates are identities that wait for nothing but the op whose output they pass on. Optimizers put them
    there, so that a gradient is not used before all others of the same op are made. The tensor itself where
    something in between waits for more.
    """
    source, between = tensor, []
    while source.op.type in ("Identity", "SokDivideGradients"):
        between.append(source.op)
        source = source.op.inputs[0]
    divisors = [op.get_attr("divisor") for op in between if op.type == "SokDivideGradients"]
    # Over ranks the op that gives gradients of weights is one of those that the sums are made from.
    awaited_anyway = {source.op, *(tensor.op for tensor in source.op.inputs), *between}
    if len(divisors) > 1 or not all(_waits_only_for(op, awaited_anyway) for op in between):
        return tensor, 1
    return source, divisors[0] if divisors else 1


def _waits_only_for(op: tf.Operation, awaited: set[tf.Operation]) -> bool:
    return all(
        control in awaited or (control.type == "NoOp" and _waits_only_for(control, awaited))
        for control in op.control_inputs
    )
