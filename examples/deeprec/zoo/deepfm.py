"""DeepFM (Guo et al., 2017) on Criteo: will an advertisement be clicked?

A WorkQueue distributes the files. Adagrad's accumulators decay.

    python deepfm.py --data_location criteo
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_data
import zoo_layers
import zoo_run


def first_order(features, flags):
    """The sum of a weight for each category; the weights are embeddings of one float."""
    with tf.variable_scope("first_order"):
        keys = [
            tf.feature_column.categorical_column_with_embedding(name, dtype=tf.string)
            for name in zoo_data.CRITEO_CATEGORIES
        ]
        columns = [tf.feature_column.embedding_column(key, 1, do_fusion=flags.emb_fusion) for key in keys]
        return tf.reduce_sum(tf.feature_column.input_layer(features, columns), axis=1, keepdims=True)


def build(features, labels, flags):
    """The sum of a linear part, of the products of all pairs of embeddings, and of a network on them."""
    columns = zoo_layers.embedding_columns(zoo_data.CRITEO_CATEGORIES, flags)
    flat = zoo_layers.input_layer(features, columns, flags)
    fields = tf.reshape(flat, [-1, len(zoo_data.CRITEO_CATEGORIES), flags.embedding_dim])
    square_of_sum = tf.square(tf.reduce_sum(fields, axis=1))
    sum_of_squares = tf.reduce_sum(tf.square(fields), axis=1)
    second_order = 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)
    numbers = tf.stack([features[name] for name in zoo_data.CRITEO_NUMBERS], axis=1)
    inputs = tf.concat([flat, tf.math.log1p(tf.maximum(numbers, 0.0))], axis=1)
    logits = first_order(features, flags) + second_order + zoo_layers.mlp(inputs, [64, 32, 1], "deep", flags)
    return zoo_run.Model(zoo_layers.log_loss(labels["label"], logits), {"label": tf.sigmoid(logits)})


def main(arguments=None):
    """Runs the program; returns its results."""
    flags = zoo_run.parse(
        __doc__, arguments, workqueue=True, optimizer="adagraddecay", learning_rate=0.05, embedding_dim=8
    )
    return zoo_run.run("criteo", build, flags)


if __name__ == "__main__":
    main()
