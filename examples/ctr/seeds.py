"""Seeds of the random ops of a graph, in the order in which they are made."""

from __future__ import annotations

import tensorflow as tf

_COLLECTION = "ctr_seeds"


def next_seed() -> int:
    """The seed of the next random op: the number of earlier calls in the current graph.

    The op combines it with the graph's seed. An op without a seed would get the same one from TensorFlow 2,
    but from TensorFlow 1.15 the number of all ops in the graph. That number differs between one rank and
    several, so initial weights would too.
    """
    seeds = tf.compat.v1.get_collection_ref(_COLLECTION)
    seeds.append(len(seeds))
    return seeds[-1]
