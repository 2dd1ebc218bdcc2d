"""How sessions of the benchmarks are configured."""

from __future__ import annotations

import tensorflow as tf


def session_config(threads: int) -> tf.compat.v1.ConfigProto:
    """As many intra-op and inter-op threads; Grappler without its arithmetic optimization.

    That pass lets embedding_lookup_sparse read the variable instead of gathering rows, which copies it whole
    once an optimizer has scattered into it and is ten times slower here; we compare with the faster form.
    """
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    rewrites = config.graph_options.rewrite_options
    rewrites.arithmetic_optimization = type(rewrites).OFF
    return config
