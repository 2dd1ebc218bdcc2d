"""Deep interest network (Zhou et al., 2018) on MovieLens: will a user like a film, given those liked before?

The embedding variable of films is looked up without feature columns.

    python din.py --data_location ml-100k
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_layers
import zoo_run

# The score of paddings: its exponential is zero.
NO_WEIGHT = -1e9


def attention(query, keys, mask, flags):
    """The mean of `keys`, [batch, n, dim], weighted by their relevance to `query`, [batch, dim]."""
    queries = tf.tile(query[:, tf.newaxis, :], [1, tf.shape(keys)[1], 1])
    inputs = tf.concat([queries, keys, queries - keys, queries * keys], axis=2)
    scores = zoo_layers.mlp(tf.reshape(inputs, [-1, 4 * flags.embedding_dim]), [32, 1], "attention", flags)
    scores = tf.reshape(scores, tf.shape(mask))
    # A sample without history has a weight for each of its paddings, whose rows are zeros.
    weights = tf.nn.softmax(tf.where(mask, scores, tf.fill(tf.shape(mask), NO_WEIGHT)))
    return tf.reduce_sum(keys * weights[:, :, tf.newaxis], axis=1)


def build(features, labels, flags):
    """A network on the user, the film, the sum of the history and the mean weighted by relevance."""
    user = zoo_layers.input_layer(features, zoo_layers.embedding_columns(["user"], flags), flags)
    option = zoo_layers.ev_option(flags)
    films = tf.get_embedding_variable("films", embedding_dim=flags.embedding_dim, ev_option=option)
    film = tf.nn.embedding_lookup(films, features["item"])
    history = tf.sparse.to_dense(features["history"], default_value=-1)
    mask = history >= 0
    keys = tf.nn.embedding_lookup(films, tf.where(mask, history, tf.zeros_like(history)))
    keys *= tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    liked = tf.reduce_sum(keys, axis=1)
    inputs = tf.concat([user, film, liked, film * liked, attention(film, keys, mask, flags)], axis=1)
    logits = zoo_layers.mlp(inputs, [64, 32, 1], "network", flags)
    return zoo_run.Model(zoo_layers.log_loss(labels["liked"], logits), {"liked": tf.sigmoid(logits)})


def main(arguments=None):
    """Runs the program; returns its results."""
    flags = zoo_run.parse(__doc__, arguments, optimizer="adam", learning_rate=0.01)
    return zoo_run.run("movielens", build, flags)


if __name__ == "__main__":
    main()
