"""ESMM (Ma et al., 2018) on MovieLens, with an Estimator: will a user watch a film to its end, and like it?

The second probability is that of liking a film that is watched. It is trained on all samples, as a factor of
the probability that both happen. The film and the history share a table, in which rare films get no rows.

    python esmm.py --data_location ml-100k
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_data
import zoo_layers
import zoo_run


def columns_of(flags):
    """The columns of users, and a table that the film shares with the films that the user liked before."""
    option = zoo_layers.ev_option(flags)
    films = [
        tf.feature_column.categorical_column_with_embedding(name, dtype=tf.int64, ev_option=option)
        for name in ("item", "history")
    ]
    shared = tf.feature_column.shared_embedding_columns(
        films, flags.embedding_dim, combiner="mean", do_fusion=flags.emb_fusion
    )
    return [*zoo_layers.embedding_columns(zoo_data.MOVIELENS_USER + ["year", "genres"], flags), *shared]


def build(features, labels, flags):
    """A network for each of the two probabilities."""
    inputs = zoo_layers.input_layer(features, columns_of(flags), flags)
    watched = zoo_layers.mlp(inputs, [64, 32, 1], "watched", flags)
    liked_if_watched = zoo_layers.mlp(inputs, [64, 32, 1], "liked_if_watched", flags)
    liked = tf.sigmoid(watched) * tf.sigmoid(liked_if_watched)
    labels_of_liked = tf.reshape(labels["liked"], tf.shape(liked))
    loss = zoo_layers.log_loss(labels["watched"], watched) + tf.losses.log_loss(labels_of_liked, liked)
    return zoo_run.Model(loss, {"watched": tf.sigmoid(watched), "liked": liked})


def main(arguments=None):
    """Runs the program; returns its results."""
    flags = zoo_run.parse(__doc__, arguments, ev_filter="cbf", learning_rate=0.003)
    return zoo_run.run("movielens", build, flags, with_estimator=True)


if __name__ == "__main__":
    main()
