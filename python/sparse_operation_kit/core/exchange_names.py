"""Names of exchanges, by which ranks match them."""

from __future__ import annotations

import collections
import hashlib
import weakref
from collections.abc import Sequence

import tensorflow as tf

from sparse_operation_kit.compat.internals import func_graph, ops

# Names are sent in every negotiation between ranks, so long lists of tables are replaced by a fingerprint.
_LONGEST_NAME = 120

# How often each name was used, by graph.
_names: weakref.WeakKeyDictionary[tf.Graph, collections.Counter] = weakref.WeakKeyDictionary()


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
