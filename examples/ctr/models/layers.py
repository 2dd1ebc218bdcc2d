"""The dense layers that the models share, as plain graph-mode TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from ctr.seeds import next_seed


def dense(
    inputs: tf.Tensor, units: int, name: str, activation: Callable[[tf.Tensor], tf.Tensor] | None = None
) -> tf.Tensor:
    """float32 [batch, units]: activation(inputs W + b), with Glorot's initial weights."""
    with tf.compat.v1.variable_scope(name):
        weights = tf.compat.v1.get_variable(
            "weights",
            [inputs.shape[1], units],
            initializer=tf.compat.v1.glorot_uniform_initializer(seed=next_seed()),
            use_resource=True,
        )
        bias = tf.compat.v1.get_variable(
            "bias", [units], initializer=tf.compat.v1.zeros_initializer(), use_resource=True
        )
    outputs = tf.matmul(inputs, weights) + bias
    return outputs if activation is None else activation(outputs)


def mlp(
    inputs: tf.Tensor, hidden: Sequence[int], dropout: float, training: tf.Tensor, name: str
) -> tf.Tensor:
    """Layers of ReLU units, each followed by dropout at rate `dropout` while training."""
    # The rate is a tensor, so that one graph serves training and evaluation without a branch.
    rate = dropout * tf.cast(training, tf.float32)
    outputs = inputs
    for position, units in enumerate(hidden):
        outputs = dense(outputs, units, f"{name}_{position}", tf.nn.relu)
        if dropout > 0:
            outputs = tf.nn.dropout(outputs, rate=rate, seed=next_seed())
    return outputs


def logit(inputs: tf.Tensor, name: str) -> tf.Tensor:
    """float32 [batch]: one linear unit."""
    return tf.squeeze(dense(inputs, 1, name), axis=1)
