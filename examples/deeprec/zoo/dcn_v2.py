"""DCN-v2 (Wang et al., 2021) on Criteo, with an Estimator: will an advertisement be clicked?

Rows that were not updated in the last 4000 steps are evicted when a checkpoint is saved.

    mpirun -np 2 python dcn_v2.py --data_location criteo --checkpoint checkpoints
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf
import zoo_data
import zoo_layers
import zoo_run

CROSSES = 2


def cross(inputs, flags):
    """Layers x = x0 * (W x + b) + x."""
    outputs = inputs
    for layer in range(CROSSES):
        outputs += inputs * zoo_layers.mlp(outputs, [inputs.shape[1]], f"cross_{layer}", flags)
    return outputs


def build(features, labels, flags):
    """A cross network and a deep network side by side."""
    numbers = [
        tf.feature_column.numeric_column(name, normalizer_fn=lambda x: tf.math.log1p(tf.maximum(x, 0.0)))
        for name in zoo_data.CRITEO_NUMBERS
    ]
    embeddings = zoo_layers.embedding_columns(zoo_data.CRITEO_CATEGORIES, flags)
    inputs = zoo_layers.input_layer(features, numbers + embeddings, flags)
    deep = zoo_layers.mlp(inputs, [64, 32], "deep", flags)
    logits = zoo_layers.mlp(tf.concat([cross(inputs, flags), deep], axis=1), [1], "logits", flags)
    return zoo_run.Model(zoo_layers.log_loss(labels["label"], logits), {"label": tf.sigmoid(logits)})


def main(arguments=None):
    """Runs the program; returns its results."""
    flags = zoo_run.parse(__doc__, arguments, ev_elimination="gstep", embedding_dim=8, learning_rate=0.003)
    return zoo_run.run("criteo", build, flags, with_estimator=True)


if __name__ == "__main__":
    main()
