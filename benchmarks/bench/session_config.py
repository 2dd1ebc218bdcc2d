"""The configuration of the benchmarks' sessions."""

from __future__ import annotations

import tensorflow as tf


def session_config(threads: int, on_gpu: bool = False) -> tf.compat.v1.ConfigProto:
    """A configuration with as many intra-op and inter-op threads, without Grappler's arithmetic optimization.

    The optimization makes embedding_lookup_sparse read the variable instead of gathering rows. Once an
    optimizer has scattered into the variable, the read copies it whole, which is ten times slower. We compare
    with the faster form.

    Without `on_gpu`, TensorFlow sees no GPU.
    """
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    if not on_gpu:
        config.device_count["GPU"] = 0
    # Otherwise TensorFlow takes the memory that our tables need.
    config.gpu_options.allow_growth = on_gpu
    rewrites = config.graph_options.rewrite_options
    rewrites.arithmetic_optimization = type(rewrites).OFF
    return config
