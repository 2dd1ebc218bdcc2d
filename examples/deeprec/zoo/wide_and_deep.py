"""Wide and deep (Cheng et al., 2016) on census income: does a person earn more than 50,000 dollars?

The wide part is a linear model with crossed columns, trained by FTRL; the deep part is trained by Adagrad.

    python wide_and_deep.py --data_location census-income
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_data
import zoo_layers
import zoo_run


def wide_columns(age):
    """Columns over embedding variables, buckets of the age, and crosses of these."""
    keys = [
        tf.feature_column.categorical_column_with_embedding(name, dtype=tf.string)
        for name in zoo_data.CENSUS_CATEGORIES
    ]
    crosses = [
        tf.feature_column.crossed_column(["education", "occupation"], 10_000),
        tf.feature_column.crossed_column([age, "education", "occupation"], 50_000),
    ]
    return [*keys, *crosses, age]


def deep_columns(age, flags):
    """Embeddings of the categories, and the numbers, whose range `log1p` makes small."""
    numbers = [
        tf.feature_column.numeric_column(name, normalizer_fn=tf.math.log1p)
        for name in zoo_data.CENSUS_NUMBERS
    ]
    embeddings = zoo_layers.embedding_columns(zoo_data.CENSUS_CATEGORIES, flags)
    return [*numbers, *embeddings, tf.feature_column.indicator_column(age)]


def build(features, labels, flags):
    """The sum of a linear model and a network."""
    age = tf.feature_column.bucketized_column(
        tf.feature_column.numeric_column("age"), [18, 25, 30, 35, 40, 45, 50, 55, 60, 65]
    )
    with tf.variable_scope("wide"):
        wide = tf.feature_column.linear_model(features, wide_columns(age), do_fusion=flags.emb_fusion)
    with tf.variable_scope("deep"):
        inputs = zoo_layers.input_layer(features, deep_columns(age, flags), flags)
        deep = zoo_layers.mlp(inputs, [64, 32, 1], "network", flags)
    logits = wide + deep
    return zoo_run.Model(zoo_layers.log_loss(labels["label"], logits), {"label": tf.sigmoid(logits)})


def minimize(loss, flags, global_step):
    """FTRL trains the variables of the wide part, and `--optimizer` the others."""
    wide, deep = (tf.trainable_variables(scope) for scope in ("wide", "deep"))
    ftrl = tf.train.FtrlOptimizer(
        flags.linear_learning_rate, l1_regularization_strength=0.01, l2_regularization_strength=0.01
    )
    with tf.control_dependencies([ftrl.minimize(loss, var_list=wide)]):
        return zoo_layers.optimizer(flags, global_step).minimize(loss, global_step, var_list=deep)


def main(arguments=None):
    """Runs the program; returns its results."""
    flags = zoo_run.parse(
        __doc__, arguments, optimizer="adagrad", learning_rate=0.05, linear_learning_rate=0.1
    )
    return zoo_run.run("census", build, flags, minimize=minimize)


if __name__ == "__main__":
    main()
