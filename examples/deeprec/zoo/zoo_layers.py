"""What the models have in common: dense layers, options of embedding variables, optimizers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf
import zoo_cluster

import sparse_operation_kit.deeprec  # noqa: F401 - gives tf DeepRec's names

# Of adaptive columns: how often a film was seen that has a row of its own, and the rows that others share.
SEEN_OFTEN = 5
SHARED_ROWS = 100


def mlp(inputs: tf.Tensor, units: Sequence[int], name: str, flags: argparse.Namespace) -> tf.Tensor:
    """Dense layers, all but the last with a ReLU; float32 [batch, units[-1]]."""
    # On parameter servers a large variable has as many parts as there are servers.
    parts = max(1, zoo_cluster.Cluster().servers)
    partitioner = tf.min_max_variable_partitioner(parts, min_slice_size=flags.dense_layer_partitioner << 10)
    scope = tf.variable_scope(name, partitioner=partitioner, reuse=tf.AUTO_REUSE)
    with scope.keep_weights(dtype=tf.float32) if flags.bf16 else scope:
        outputs = tf.cast(inputs, tf.bfloat16) if flags.bf16 else inputs
        for layer, size in enumerate(units):
            activation = tf.nn.relu if layer < len(units) - 1 else None
            outputs = tf.layers.dense(outputs, size, activation, name=f"layer_{layer}")
    return tf.cast(outputs, tf.float32)


def ev_option(flags: argparse.Namespace) -> Any:
    """The `EmbeddingVariableOption` of `--ev_filter` and `--ev_elimination`."""
    filters = {
        "counter": lambda: tf.CounterFilter(filter_freq=3),
        "cbf": lambda: tf.CBFFilter(
            filter_freq=3, max_element_size=2**30, false_positive_probability=0.01, counter_type=tf.int64
        ),
    }
    evictions = {
        "gstep": lambda: tf.GlobalStepEvict(steps_to_live=4000),
        "l2": lambda: tf.L2WeightEvict(l2_weight_threshold=1e-6),
    }
    return tf.EmbeddingVariableOption(
        filter_option=filters[flags.ev_filter]() if flags.ev_filter else None,
        evict_option=evictions[flags.ev_elimination]() if flags.ev_elimination else None,
    )


def embedding_columns(
    names: Sequence[str], flags: argparse.Namespace, dtype: tf.DType = tf.string, combiner: str = "mean"
) -> list:
    """An embedding column over an embedding variable for each feature, all in one group.

    With `--adaptive_emb` they are adaptive columns, which `input_layer` of this module reads.
    """
    option = ev_option(flags)
    with tf.feature_column.group_embedding_column_scope(name="_".join(names)[:40]):
        keys = [
            tf.feature_column.categorical_column_with_adaptive_embedding(
                name, hash_bucket_size=SHARED_ROWS, dtype=dtype, ev_option=option
            )
            if flags.adaptive_emb
            else tf.feature_column.categorical_column_with_embedding(name, dtype=dtype, ev_option=option)
            for name in names
        ]
        return [
            tf.feature_column.embedding_column(
                key, flags.embedding_dim, combiner=combiner, do_fusion=flags.emb_fusion
            )
            for key in keys
        ]


def input_layer(features: dict[str, Any], columns: Sequence[Any], flags: argparse.Namespace) -> tf.Tensor:
    """The outputs of the columns side by side, [batch, their dims].

    With `--adaptive_emb`, films that were seen fewer than `SEEN_OFTEN` times share rows. All ids of other
    features have rows of their own, as in DeepRec's scripts.
    """
    if not flags.adaptive_emb:
        return tf.feature_column.input_layer(features, columns)
    samples = tf.shape(next(value for value in features.values() if isinstance(value, tf.Tensor)))[:1]
    masks = {name: tf.ones(samples, tf.int32) for name in features}
    if "item_seen" in features:
        masks["item"] = tf.cast(features["item_seen"] >= SEEN_OFTEN, tf.int32)
    return tf.feature_column.input_layer(features, columns, adaptive_mask_tensors=masks)


def _padding(dtype: tf.DType) -> Any:
    return "" if dtype == tf.string else -1


def padded(lists: tf.SparseTensor) -> tf.Tensor:
    """Lists of strings or of numbers >= 0 as a matrix, with empty strings or -1 at their ends."""
    return tf.sparse.to_dense(lists, default_value=_padding(lists.dtype))


def without_padding(lists: tf.Tensor) -> tf.SparseTensor:
    """The lists of which `padded` made a matrix."""
    places = tf.where(tf.not_equal(lists, _padding(lists.dtype)))
    return tf.SparseTensor(places, tf.gather_nd(lists, places), tf.shape(lists, out_type=tf.int64))


def log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """The mean log loss of labels and logits, both float32 [batch] or [batch, 1]."""
    labels = tf.reshape(labels, tf.shape(logits))
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def optimizer(flags: argparse.Namespace, global_step: tf.Variable) -> tf.train.Optimizer:
    """The optimizer of `--optimizer`."""
    rate = flags.learning_rate
    return {
        "adam": lambda: tf.train.AdamOptimizer(rate),
        "adamasync": lambda: tf.train.AdamAsyncOptimizer(rate),
        "adagrad": lambda: tf.train.AdagradOptimizer(rate),
        "adagraddecay": lambda: tf.train.AdagradDecayOptimizer(rate, global_step),
        "ftrl": lambda: tf.train.FtrlOptimizer(rate, l2_regularization_strength=1e-4),
    }[flags.optimizer]()
