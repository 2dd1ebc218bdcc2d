"""Names of exchanges, by which ranks match them, and counts of a process's exchanges."""

from __future__ import annotations

import collections
import hashlib
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.compat.internals import func_graph, ops
from sparse_operation_kit.graphs import graph_ops

# Names are sent in every negotiation between ranks, so long lists of tables are replaced by a fingerprint.
_LONGEST_NAME = 120

# How often each name was used, by graph.
_names: weakref.WeakKeyDictionary[tf.Graph, collections.Counter] = weakref.WeakKeyDictionary()
# How many ops of each graph `adopt` has seen.
_adopted: weakref.WeakKeyDictionary[tf.Graph, int] = weakref.WeakKeyDictionary()
# Types of ops with the attribute `exchange_name`.
_WITH_NAMES = (graph_ops.EXCHANGE, graph_ops.GROUP_COMBINE)


def list_of(table_names: Sequence[str]) -> str:
    """Returns the tables' names in quotes; if that is too long, the first name and a fingerprint of all."""
    everything = ", ".join(f"'{name}'" for name in table_names)
    if len(everything) <= _LONGEST_NAME:
        return everything
    fingerprint = hashlib.sha256(everything.encode()).hexdigest()[:16]
    return f"'{table_names[0]}' and {len(table_names) - 1} more ({fingerprint})"


def unique_name(name: str) -> str:
    """Returns `name` or, if the default graph has used it, `name #2` and so on.

    The result does not depend on the order in which exchanges of different names are built, which may differ
    between ranks. Functions that are traced in eager execution have names of their own, because ranks may
    trace them again at different times. An exchange in eager execution ends before the next begins, and keeps
    `name`.
    """
    if tf.executing_eagerly():
        return name
    graph = tf.compat.v1.get_default_graph()
    is_eager_outside = ops.executing_eagerly_outside_functions()
    while getattr(graph, "outer_graph", None) is not None:
        if is_eager_outside and not isinstance(graph.outer_graph, func_graph.FuncGraph):
            break
        graph = graph.outer_graph
    counter = _names.setdefault(graph, collections.Counter())
    counter[name] += 1
    return name if counter[name] == 1 else f"{name} #{counter[name]}"


def adopt(graph: tf.Graph, scope: str | None) -> None:
    """Makes the names of exchanges that came with a MetaGraph unique in the graph.

    Without a scope, they keep their names, and `unique_name` returns none of them any more. Under a scope,
    which is different for each import, the scope is added to each name.
    """
    everything = graph.get_operations()
    counter = _names.setdefault(graph, collections.Counter())
    for op in everything[_adopted.get(graph, 0) :]:
        if op.type not in _WITH_NAMES:
            continue
        name = op.get_attr("exchange_name").decode()
        if scope and op.name.startswith(f"{scope}/"):
            name = f"{name} in {scope}"
            op._set_attr("exchange_name", tf.compat.v1.AttrValue(s=name.encode()))
        # An exchange may have a part of its own after the name.
        for used in {name, name.rpartition(": ")[0]} - {""}:
            base, _, number = used.rpartition(" #")
            if not base or not number.isdigit():
                base, number = used, "1"
            counter[base] = max(counter[base], int(number))
    _adopted[graph] = len(everything)


class ExchangeStatistics(NamedTuple):
    """Counts since the process started: scalar int64 tensors, or the values that a session returned for them.

    Only successful exchanges count. Bytes are those of the exchanged words, without Horovod's overhead. Bytes
    from a rank to itself count in `bytes_sent` and `bytes_received` only.
    """

    exchanges: tf.Tensor
    bytes_sent: tf.Tensor
    bytes_received: tf.Tensor
    bytes_sent_to_others: tf.Tensor
    bytes_received_from_others: tf.Tensor


def exchange_statistics() -> ExchangeStatistics:
    """Returns tensors that read this process's counts whenever they run.

    To count the exchanges of a step, run them before and after the step, not in it.

    Raises:
      ImportError: Horovod is missing, or no exchange library was built for it.
    """
    return ExchangeStatistics(*tf.unstack(native.horovod_ops().sok_exchange_statistics(), 5))
