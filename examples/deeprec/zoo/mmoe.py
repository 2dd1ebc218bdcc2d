"""MMoE (Ma et al., 2018) on MovieLens: will a user like a film, and will they love it?

Experts are shared, and each task has a gate of its own. Small rows are evicted when a checkpoint is saved.

    python mmoe.py --data_location ml-100k --bf16
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_data
import zoo_layers
import zoo_run

EXPERTS = 4
TASKS = ("liked", "loved")


def build(features, labels, flags):
    """A tower for each task on a mixture of experts."""
    columns = zoo_layers.embedding_columns(zoo_data.MOVIELENS_USER + ["year", "genres"], flags)
    columns += zoo_layers.embedding_columns(["item"], flags, tf.int64)
    inputs = zoo_layers.input_layer(features, columns, flags)
    experts = tf.stack(
        [tf.nn.relu(zoo_layers.mlp(inputs, [64, 32], f"expert_{i}", flags)) for i in range(EXPERTS)], axis=1
    )
    logits = {}
    for task in TASKS:
        gate = tf.nn.softmax(zoo_layers.mlp(inputs, [EXPERTS], f"gate_{task}", flags))
        mixed = tf.reduce_sum(experts * gate[:, :, tf.newaxis], axis=1)
        logits[task] = zoo_layers.mlp(mixed, [16, 1], f"tower_{task}", flags)
    loss = tf.add_n([zoo_layers.log_loss(labels[task], logits[task]) for task in TASKS])
    return zoo_run.Model(loss, {task: tf.sigmoid(logits[task]) for task in TASKS})


def main(arguments=None):
    """Runs the program; returns its results."""
    flags = zoo_run.parse(__doc__, arguments, ev_elimination="l2", learning_rate=0.003)
    return zoo_run.run("movielens", build, flags)


if __name__ == "__main__":
    main()
