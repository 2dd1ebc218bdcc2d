"""DSSM (Huang et al., 2013) on MovieLens: two networks, whose outputs are near if a user likes a film.

With adaptive embedding, films that were seen often have rows of their own, and the others share 100 rows.

    python dssm.py --data_location ml-100k
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_data
import zoo_flags
import zoo_layers
import zoo_run

SEEN_OFTEN = 5
SHARED_ROWS = 100


def user_tower(features, flags):
    """A unit vector for each user, from a group of columns."""
    with tf.variable_scope("user"):
        columns = zoo_layers.embedding_columns(zoo_data.MOVIELENS_USER, flags)
        inputs = tf.feature_column.input_layer(features, columns)
        return tf.nn.l2_normalize(zoo_layers.mlp(inputs, [64, 32], "network", flags), axis=1)


def item_tower(features, flags):
    """A unit vector for each film."""
    with tf.variable_scope("item"):
        columns = zoo_layers.embedding_columns(["year", "genres"], flags)
        masks = None
        if flags.adaptive_emb:
            film = tf.feature_column.categorical_column_with_adaptive_embedding("item", SHARED_ROWS, tf.int64)
            masks = {"item": tf.cast(features["item_seen"] >= SEEN_OFTEN, tf.int32)}
        else:
            film = tf.feature_column.categorical_column_with_embedding("item", tf.int64)
        column = tf.feature_column.embedding_column(
            film, flags.embedding_dim, initializer=tf.constant_initializer(0.01)
        )
        inputs = tf.feature_column.input_layer(features, [*columns, column], adaptive_mask_tensors=masks)
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
    flags = zoo_flags.parse(__doc__, arguments, adaptive_emb=True, optimizer="adam", learning_rate=0.003)
    return zoo_run.run("movielens", build, flags)


if __name__ == "__main__":
    main()
