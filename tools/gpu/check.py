"""Trains a table on the GPU and on the CPU, and compares the rows: they must be the same bits."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok

_STEPS, _IDS, _DIM = 20, 20_000, 16


def _trained(device: str) -> tuple[np.ndarray, np.ndarray]:
    """Keys and rows of a table on `device` after some steps with LazyAdam."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        init = sok.Init(global_batch_size=_IDS, seed=1)
        with tf.device(device):
            table = sok.EmbeddingVariable("table", _DIM)
        ids = tf.compat.v1.placeholder(tf.int64, [_IDS])
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids) - 1))
        step = sok.tf.keras.optimizers.LazyAdamOptimizer(0.01).minimize(loss, var_list=[table])
        contents = table.keys_and_rows()
        initializer = tf.compat.v1.global_variables_initializer()
        session.run(init)
        session.run(initializer)
        random = np.random.default_rng(1)
        for _ in range(_STEPS):
            session.run(step, {ids: random.zipf(1.2, _IDS) % (1 << 40)})
        return session.run(contents)


def main() -> int:
    """Runs the program; returns its exit status: 0 if the rows agree, 3 if there is no GPU to try."""
    gpus = tf.config.list_physical_devices("GPU")
    expected = _trained("/CPU:0")
    if not gpus:
        print(f"Installed, and works on the CPU: {len(expected[0])} rows.")
        print("TensorFlow finds no GPU, so nothing was tried on one.")
        return 3
    got = _trained("/GPU:0")
    agree = all(np.array_equal(one, other) for one, other in zip(expected, got, strict=True))
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", gpus[0].name)
    verdict = "are the CPU's, bit for bit" if agree else "DIFFER from the CPU's"
    print(f"{name}: {len(got[0])} rows after {_STEPS} steps {verdict}.")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
