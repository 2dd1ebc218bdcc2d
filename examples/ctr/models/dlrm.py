"""DLRM (Naumov et al., 2019, arXiv:1906.00091).

A network turns the numbers into one more vector; the dot products of all pairs of vectors are the top
network's input.
"""

from __future__ import annotations

import tensorflow as tf

from ctr.models.layers import dense, logit, mlp
from ctr.models.model import Inputs, ModelSettings


def dlrm(inputs: Inputs, settings: ModelSettings) -> tf.Tensor:
    """float32 [batch] logits."""
    bottom = mlp(inputs.batch["dense"], settings.hidden[-1:], 0.0, inputs.training, "bottom")
    bottom = dense(bottom, settings.dim, "bottom_out", tf.nn.relu)
    vectors = tf.concat([bottom[:, tf.newaxis, :], inputs.embed("embedding", settings.dim)], axis=1)
    top = tf.concat([bottom, pair_products(vectors)], axis=1)
    return logit(mlp(top, settings.hidden, settings.dropout, inputs.training, "top"), "top_logit")


def pair_products(vectors: tf.Tensor) -> tf.Tensor:
    """float32 [batch, n (n - 1) / 2]: the dot product of each pair of the n vectors of [batch, n, dim]."""
    count = int(vectors.shape[1])
    products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    below_diagonal = [row * count + column for row in range(count) for column in range(row)]
    return tf.gather(products, below_diagonal, axis=1)
