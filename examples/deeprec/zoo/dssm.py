"""DSSM (Huang et al., 2013) on MovieLens: two networks, whose outputs are near if a user likes a film.

With adaptive embedding, films that were seen often have rows of their own, and the others share 100 rows.

    python dssm.py --data_location ml-100k
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_data
import zoo_layers
import zoo_run


def user_tower(features, flags):
    """A unit vector for each user, from a group of columns."""
    with tf.variable_scope("user"):
        columns = zoo_layers.embedding_columns(zoo_data.MOVIELENS_USER, flags)
        inputs = zoo_layers.input_layer(features, columns, flags)
        return tf.nn.l2_normalize(zoo_layers.mlp(inputs, [64, 32], "network", flags), axis=1)


def item_tower(features, flags):
    """A unit vector for each film."""
    with tf.variable_scope("item"):
        columns = zoo_layers.embedding_columns(["year", "genres"], flags)
        columns += zoo_layers.embedding_columns(["item"], flags, tf.int64)
        inputs = zoo_layers.input_layer(features, columns, flags)
        return tf.nn.l2_normalize(zoo_layers.mlp(inputs, [64, 32], "network", flags), axis=1)


def build(features, labels, flags):
    """The scaled cosine of the two vectors."""
    cosine = tf.reduce_sum(user_tower(features, flags) * item_tower(features, flags), axis=1)
    scale = tf.get_variable("scale", [], initializer=tf.constant_initializer(4.0))
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    logits = scale * cosine + bias
    return zoo_run.Model(zoo_layers.log_loss(labels["liked"], logits), {"liked": tf.sigmoid(logits)})


def main(arguments=None):
    """Runs the program; returns its results."""
    flags = zoo_run.parse(__doc__, arguments, adaptive_emb=True, optimizer="adam", learning_rate=0.003)
    return zoo_run.run("movielens", build, flags)


if __name__ == "__main__":
    main()
