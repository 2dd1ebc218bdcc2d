"""One optimizer step on a table: the rule, its hyper-parameters, and the rows."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables import row_policies, table_parts
from sparse_operation_kit.tables.table_device import check_trained_on_servers, on_device, on_host_of

# Above these bits of a row number in a gradient is the number of the table's part: cc/table/record_layout.h.
_REFERENCE_BITS = 53
_OWNER_ATTRIBUTE = "_sok_optimizer_and_rule"

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TableUpdate:
    """The update of a table in one step of an optimizer.

    Attributes:
      rule: the name of a rule of `cc/optimizers`.
      hyper: its hyper-parameters by name, Python numbers or scalar tensors of any float dtype.
    """

    rule: str
    hyper: Mapping[str, Any]

    def packed_hyper(self) -> tf.Tensor:
        """Returns the hyper-parameters as a float32 vector in the rule's order.

        Raises:
          ValueError: if the names in `hyper` are not those of the rule.
        """
        names = list(native.optimizer_rules()[self.rule]["hyper"])
        if set(names) != set(self.hyper):
            raise ValueError(f"Rule '{self.rule}' takes {names}, not {list(self.hyper)}")
        return tf.stack([tf.cast(self.hyper[name], tf.float32) for name in names], name="hyper")


def claim_table(variable: tf.Variable, optimizer: Any, rule: str, hyper: Mapping[str, Any]) -> None:
    """Records that `optimizer` trains `variable` with `rule`, whose hyper-parameters are `hyper`.

    Moments and accumulators are in the table's rows, which have room for those of one optimizer only.

    Raises:
      ValueError: if the variable is already trained with another rule; or if another optimizer trains it
        with this rule, and the rule keeps state; or if the variable should be on parameter servers.
    """
    check_trained_on_servers(variable)
    if variable.restored_without_optimizer:
        variable.restored_without_optimizer = False
        _log.warning(
            "Embedding variable '%s' was restored before its optimizer was made, and so without the "
            "optimizer's slots: make the optimizer first, or restore again",
            variable.m_var_name,
        )
    owner, its_rule = getattr(variable, _OWNER_ATTRIBUTE, (optimizer, rule))
    # A rule without slots keeps no state between steps, so several optimizers may train the same table.
    has_state = bool(native.optimizer_rules()[rule]["slots"])
    if its_rule != rule or (owner is not optimizer and has_state):
        raise ValueError(
            f"Embedding variable '{variable.m_var_name}' is trained by a {type(owner).__name__} already, and"
            f" its rows hold that optimizer's state. A {type(optimizer).__name__} cannot train it too: use"
            " one optimizer object for all losses of an embedding variable."
        )
    setattr(variable, _OWNER_ATTRIBUTE, (owner, rule))
    variable.trained_by = " ".join([rule, *_constants(hyper)])
    if variable.when_trained is not None:
        when_trained, variable.when_trained = variable.when_trained, None
        # Its ops are none of the update, which TensorFlow puts on the table's device.
        with on_device(""):
            when_trained()


def _constants(hyper: Mapping[str, Any]) -> Iterator[str]:
    """Yields "name=value" for the hyper-parameters that are the same in every step."""
    for name, value in hyper.items():
        static = tf.get_static_value(value) if tf.is_tensor(value) else value
        if static is not None:
            yield f"{name}={float(static)!r}"


def apply_to_table(
    variable: tf.Variable, gradient: tf.IndexedSlices, rule: str, hyper: tf.Tensor
) -> tf.Operation:
    """Returns an op that makes one step on the rows of `variable` that `gradient` names.

    Args:
      variable: an embedding variable.
      gradient: `values` float32 [n, dim] for the row numbers `indices` [n]; rows may repeat.
      rule: the name of a rule of `cc/optimizers`.
      hyper: float32 vector, the rule's hyper-parameters.
    """
    if gradient.values.dtype != variable.dtype.base_dtype:
        raise TypeError(
            f"The gradient of embedding variable '{variable.m_var_name}' is {gradient.values.dtype.name},"
            f" not {variable.dtype.base_dtype.name}"
        )
    told = row_policies.tell_global_step([variable], after=[gradient.indices])
    steps = []
    for part, (handle, indices, values) in enumerate(_by_process(variable, gradient)):
        with table_parts.beside(handle, variable), tf.control_dependencies(told[part : part + 1]):
            step = native.ops.sok_apply_gradients(
                handle=handle,
                indices=indices,
                values=values,
                hyper=hyper,
                optimizer=rule,
                indices_unique=graph_ops.names_each_row_once(gradient.indices),
            )
        steps.append(step)
    return table_parts.all_of(steps)


def _by_process(
    variable: tf.Variable, gradient: tf.IndexedSlices
) -> list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """Returns, for each process with rows, the handle there, references to rows there and their gradients."""
    indices = tf.cast(gradient.indices, tf.int64)
    count = len(variable.servers.devices)
    if not count:
        return [(variable.handle, indices, gradient.values)]
    with on_host_of(gradient.values):
        servers = tf.cast(tf.bitwise.right_shift(indices, _REFERENCE_BITS), tf.int32)
        references = tf.bitwise.bitwise_and(indices, (1 << _REFERENCE_BITS) - 1)
        return list(
            zip(
                variable.handles,
                tf.dynamic_partition(references, servers, count),
                tf.dynamic_partition(gradient.values, servers, count),
            )
        )


def has_rows(gradient: tf.IndexedSlices) -> tf.Tensor:
    """Returns whether a table's gradient has a row on this rank or any server, a scalar bool tensor.

    The gradient of a lookup is not computed for this.
    """
    found = graph_ops.lookups_behind(gradient)
    if found is None:
        return tf.size(gradient.indices, out_type=tf.int64) > 0
    lookups, table = found
    rows = []
    for lookup in lookups:
        with tf.compat.v1.get_default_graph().colocate_with(lookup.op):
            rows.append(native.ops.sok_trained_rows(lookup, table=table))
    return tf.add_n(rows) > 0


def check_gradient(variable: tf.Variable, gradient: Any) -> None:
    """Checks the gradient of an embedding variable.

    Raises:
      TypeError: if `gradient` is neither None nor tf.IndexedSlices.
      ValueError: if Horovod has gathered it from all ranks.
    """
    if gradient is None:
        return
    who = f"The gradient of embedding variable '{variable.m_var_name}'"
    if not isinstance(gradient, tf.IndexedSlices):
        raise TypeError(
            f"{who} must be tf.IndexedSlices, not {type(gradient).__name__}: a table has no dense form. Pass"
            " on what tf.gradients or compute_gradients returns; to average several, concatenate their values"
            " and their indices, and divide the values by their number"
        )
    if communicator().size > 1 and is_gathered(gradient.indices):
        raise ValueError(
            f"{who} went through Horovod's allreduce. It is already the sum over all ranks: use"
            " sok.DistributedOptimizer instead of hvd.DistributedOptimizer, or reduce only the gradients of"
            " other variables (sok.split_embedding_variable_from_others)"
        )


_GATHERS = ("HorovodAllgather", "HorovodGroupedAllgather")


def is_gathered(indices: tf.Tensor) -> bool:
    """Returns whether Horovod has gathered the row numbers of a gradient from all ranks.

    Row numbers are valid only on the rank that owns the rows. `hvd.DistributedOptimizer` and `hvd.allreduce`
    gather the tf.IndexedSlices of all ranks, which is right only for variables that every rank holds.

    Args:
      indices: the row numbers of the gradient of an embedding variable.
    """
    return any(
        op.type in _GATHERS or any(node.op in _GATHERS for node in graph_ops.nodes_of_branches(op))
        for op in graph_ops.ops_behind(indices)
    )
