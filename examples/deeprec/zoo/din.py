"""Deep interest network (Zhou et al., 2018) on MovieLens: will a user like a film, given those liked before?

Embedding variables are looked up without feature columns.

    python din.py --data_location ml-100k
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_flags
import zoo_layers
import zoo_run


def attention(query, keys, mask, flags):
    """The sum of `keys`, [batch, n, dim], weighted by their relevance to `query`, [batch, dim]."""
    queries = tf.tile(query[:, tf.newaxis, :], [1, tf.shape(keys)[1], 1])
    inputs = tf.concat([queries, keys, queries - keys, queries * keys], axis=2)
    scores = zoo_layers.mlp(tf.reshape(inputs, [-1, 4 * flags.embedding_dim]), [32, 1], "attention", flags)
    scores = tf.reshape(scores, tf.shape(mask))
    return tf.reduce_sum(keys * (scores * tf.cast(mask, tf.float32))[:, :, tf.newaxis], axis=1)


def build(features, labels, flags):
    """A network on the user, the film, and the user's history weighted by relevance to the film."""
    option = zoo_layers.ev_option(flags)
    films = tf.get_embedding_variable("films", embedding_dim=flags.embedding_dim, ev_option=option)
    users = tf.get_embedding_variable("users", embedding_dim=flags.embedding_dim, ev_option=option)
    film = tf.nn.embedding_lookup(films, features["item"])
    user = tf.nn.embedding_lookup(users, tf.strings.to_number(features["user"], tf.int64))
    history = tf.sparse.to_dense(features["history"], default_value=-1)
    mask = history >= 0
    keys = tf.nn.embedding_lookup(films, tf.where(mask, history, tf.zeros_like(history)))
    interest = attention(film, keys, mask, flags)
    logits = zoo_layers.mlp(
        tf.concat([user, film, interest, film * interest], axis=1), [64, 32, 1], "network", flags
    )
    return zoo_run.Model(zoo_layers.log_loss(labels["liked"], logits), {"liked": tf.sigmoid(logits)})


def main(arguments=None):
    """Runs the program; returns its results."""
    flags = zoo_flags.parse(__doc__, arguments, optimizer="adam", learning_rate=0.01)
    return zoo_run.run("movielens", build, flags)


if __name__ == "__main__":
    main()
