"""A Transformer (Vaswani et al., 2017, arXiv:1706.03762) as a graph, without its vocabulary table."""

from __future__ import annotations

import math
import zlib

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
# Added to the attention scores of masked positions.
_NEVER = -1e9


def variable(name: str, shape: list[int], initializer: str) -> tf.Tensor:
    """A variable whose initial value depends on its name and shape alone: the same on all ranks."""
    full_name = f"{v1.get_variable_scope().name}/{name}"
    made = {
        "glorot": v1.glorot_uniform_initializer(seed=zlib.crc32(full_name.encode())),
        "ones": v1.ones_initializer(),
        "zeros": v1.zeros_initializer(),
    }[initializer]
    return v1.get_variable(name, shape, initializer=made)


def dense(inputs: tf.Tensor, units: int, name: str) -> tf.Tensor:
    """A linear layer on the last dimension."""
    with v1.variable_scope(name):
        kernel = variable("kernel", [inputs.shape[-1], units], "glorot")
        return tf.tensordot(inputs, kernel, axes=1) + variable("bias", [units], "zeros")


def normalized(inputs: tf.Tensor, name: str) -> tf.Tensor:
    """Layer normalization of the last dimension."""
    with v1.variable_scope(name):
        mean, variance = tf.nn.moments(inputs, axes=[-1], keepdims=True)
        scale = variable("scale", [inputs.shape[-1]], "ones")
        shift = variable("shift", [inputs.shape[-1]], "zeros")
        return (inputs - mean) * tf.math.rsqrt(variance + 1e-6) * scale + shift


def attention(queries: tf.Tensor, memory: tf.Tensor, bias: tf.Tensor, heads: int, name: str) -> tf.Tensor:
    """Attention of `queries` [batch, q, width] to `memory` [batch, m, width].

    `bias` is added to the scores, [batch or 1, 1, q or 1, m].
    """
    width = queries.shape[-1]

    def split(tensor: tf.Tensor) -> tf.Tensor:
        parts = tf.reshape(tensor, [tf.shape(tensor)[0], tf.shape(tensor)[1], heads, width // heads])
        return tf.transpose(parts, [0, 2, 1, 3])

    with v1.variable_scope(name):
        query, key, value = (
            split(dense(tensor, width, part))
            for tensor, part in ((queries, "query"), (memory, "key"), (memory, "value"))
        )
        scores = tf.matmul(query, key, transpose_b=True) / math.sqrt(width // heads) + bias
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
        return dense(tf.reshape(mixed, tf.shape(queries)), width, "output")


def feed_forward(inputs: tf.Tensor, name: str) -> tf.Tensor:
    """Two linear layers, with ReLU between them."""
    with v1.variable_scope(name):
        return dense(tf.nn.relu(dense(inputs, 2 * inputs.shape[-1], "inner")), inputs.shape[-1], "outer")


def positions(length: int, width: int) -> np.ndarray:
    """The positions' sines and cosines, float32 [length, width]."""
    angles = np.arange(length)[:, np.newaxis] / 10000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width].astype(np.float32)


def translate(
    source: tf.Tensor,
    source_bias: tf.Tensor,
    target: tf.Tensor,
    *,
    width: int,
    heads: int,
    layers: int,
    vocabulary: int,
) -> tf.Tensor:
    """Logits of each next token, float32 [batch, t, vocabulary].

    Args:
      source: rows of the source's tokens, [batch, s, columns].
      source_bias: added to the scores of source tokens, [batch, 1, 1, s]; see `bias_of`.
      target: rows of the tokens so far, [batch, t, columns].
      width: floats per token within the network; a multiple of `heads`.
      heads: number of attention heads per layer.
      layers: number of layers in the encoder, and in the decoder.
      vocabulary: the number of tokens to choose from.
    """
    with v1.variable_scope("encoder"):
        memory = _entered(source, width)
        for layer in range(layers):
            with v1.variable_scope(f"layer_{layer}"):
                before = normalized(memory, "before_attention")
                memory += attention(before, before, source_bias, heads, "attention")
                memory += feed_forward(normalized(memory, "before_feed_forward"), "feed_forward")
        memory = normalized(memory, "end")
    with v1.variable_scope("decoder"):
        state = _entered(target, width)
        for layer in range(layers):
            with v1.variable_scope(f"layer_{layer}"):
                before = normalized(state, "before_attention")
                state += attention(before, before, _only_past(target.shape[1]), heads, "attention")
                before = normalized(state, "before_source")
                state += attention(before, memory, source_bias, heads, "source")
                state += feed_forward(normalized(state, "before_feed_forward"), "feed_forward")
        return dense(normalized(state, "end"), vocabulary, "logits")


def bias_of(is_token: tf.Tensor) -> tf.Tensor:
    """The attention bias that masks padding: [batch, 1, 1, s], from a bool [batch, s]."""
    return tf.cast(tf.logical_not(is_token), tf.float32)[:, tf.newaxis, tf.newaxis, :] * _NEVER


def _only_past(length: int) -> tf.Tensor:
    future = np.triu(np.ones([length, length], np.float32), k=1)
    return tf.constant(future[np.newaxis, np.newaxis] * _NEVER)


def _entered(rows: tf.Tensor, width: int) -> tf.Tensor:
    # The table may be wider than the network.
    return dense(rows, width, "enter") + positions(rows.shape[1], width)
