"""Names of exchanges, by which ranks know which belong together."""

import collections
import hashlib
import weakref
from collections.abc import Sequence

import tensorflow as tf

# Names are part of every negotiation between ranks: a group of a hundred tables is told by a fingerprint.
_LONGEST_NAME = 120

# How often each name was given out, by graph.
_names: weakref.WeakKeyDictionary[tf.Graph, collections.Counter] = weakref.WeakKeyDictionary()


def list_of(table_names: Sequence[str]) -> str:
    """The tables' names in quotes, or the first of many and a fingerprint of all."""
    everything = ", ".join(f"'{name}'" for name in table_names)
    if len(everything) <= _LONGEST_NAME:
        return everything
    fingerprint = hashlib.sha256(everything.encode()).hexdigest()[:16]
    return f"'{table_names[0]}' and {len(table_names) - 1} more ({fingerprint})"


def unique_name(name: str) -> str:
    """`name`, or `name #2` and so on where the default graph has it already.

    It depends on what is exchanged and not on the order in which different exchanges are built: that may
    differ between ranks.
    """
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    counter = _names.setdefault(graph, collections.Counter())
    counter[name] += 1
    return name if counter[name] == 1 else f"{name} #{counter[name]}"
