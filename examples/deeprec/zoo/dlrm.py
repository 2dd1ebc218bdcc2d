"""DLRM (Naumov et al., 2019) on Criteo: will an advertisement be clicked?

Ids that occurred fewer than three times have no rows. Ranks train together.

    mpirun -np 2 python dlrm.py --data_location criteo --checkpoint checkpoints
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_data
import zoo_layers
import zoo_run


def build(features, labels, flags):
    """A network on the products of all pairs of embeddings and of a network on the numbers."""
    numbers = tf.stack([features[name] for name in zoo_data.CRITEO_NUMBERS], axis=1)
    bottom = zoo_layers.mlp(
        tf.math.log1p(tf.maximum(numbers, 0.0)), [64, flags.embedding_dim], "bottom", flags
    )
    columns = zoo_layers.embedding_columns(zoo_data.CRITEO_CATEGORIES, flags)
    embeddings = zoo_layers.input_layer(features, columns, flags)
    vectors = tf.concat([bottom, embeddings], axis=1)
    count = len(zoo_data.CRITEO_CATEGORIES) + 1
    vectors = tf.reshape(vectors, [-1, count, flags.embedding_dim])
    products = tf.matmul(vectors, vectors, transpose_b=True)
    pairs = [row * count + column for row in range(count) for column in range(row)]
    interactions = tf.gather(tf.reshape(products, [-1, count * count]), pairs, axis=1)
    logits = zoo_layers.mlp(tf.concat([bottom, interactions], axis=1), [64, 32, 1], "top", flags)
    return zoo_run.Model(zoo_layers.log_loss(labels["label"], logits), {"label": tf.sigmoid(logits)})


def main(arguments=None):
    """Runs the program; returns its results."""
    flags = zoo_run.parse(
        __doc__, arguments, ev_filter="counter", incremental_ckpt=60, optimizer="adagrad", learning_rate=0.05
    )
    return zoo_run.run("criteo", build, flags)


if __name__ == "__main__":
    main()
