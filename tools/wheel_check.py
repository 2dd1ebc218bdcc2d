"""Trains a table for one step with the installed package; tools/test_wheel.sh runs this program.

Usage: wheel_check.py ENVIRONMENT_FOLDER
"""

import os
import platform
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok

tf1 = tf.compat.v1


def main(environment: str) -> None:
    """Checks a step of gradient descent exactly, and that the package is the one in `environment`."""
    package = os.path.realpath(sok.__file__)
    if not package.startswith(os.path.realpath(environment)):
        sys.exit(f"the package was imported from {package}, not from the wheel")

    with tf.Graph().as_default(), tf1.Session() as session:
        init = sok.Init(global_batch_size=4)
        table = sok.EmbeddingVariable("table", 3, initializer=1.0)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant([7, -1, 7, 2**40], tf.int64)))
        train = tf1.train.GradientDescentOptimizer(0.25).minimize(loss)
        rows = tf.nn.embedding_lookup(table, tf.constant([7, -1, 2**40], tf.int64))
        session.run(init)
        session.run(tf1.global_variables_initializer())
        session.run(train)
        np.testing.assert_array_equal(session.run(rows), np.repeat([[0.5], [0.75], [0.75]], 3, axis=1))
    versions = f"TensorFlow {tf.__version__} and Python {platform.python_version()}"
    print(f"sparse_operation_kit {sok.__version__} works with {versions} from {package}")


if __name__ == "__main__":
    main(sys.argv[1])
