"""What the models have in common: dense layers, options of embedding variables, optimizers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

import sparse_operation_kit.deeprec  # noqa: F401 - gives tf DeepRec's names


def mlp(inputs: tf.Tensor, units: Sequence[int], name: str, flags: argparse.Namespace) -> tf.Tensor:
    """Dense layers, all but the last with a ReLU; float32 [batch, units[-1]]."""
    # For parameter servers there would be as many parts as servers; each variable has one.
    partitioner = tf.min_max_variable_partitioner(1, min_slice_size=flags.dense_layer_partitioner << 10)
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
    """An embedding column over an embedding variable for each feature, all in one group."""
    with tf.feature_column.group_embedding_column_scope(name="_".join(names)[:40]):
        keys = [
            tf.feature_column.categorical_column_with_embedding(name, dtype=dtype, ev_option=ev_option(flags))
            for name in names
        ]
        return [
            tf.feature_column.embedding_column(
                key, flags.embedding_dim, combiner=combiner, do_fusion=flags.emb_fusion
            )
            for key in keys
        ]


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
