"""Layers without control dependencies, built in different orders on the ranks, do not deadlock."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok

DIM = 3
KEYS = 40
LAYERS = 8
STEPS = 15


def _keys(layer: int, step: int, rank: int) -> np.ndarray:
    rng = np.random.default_rng([layer, step, rank])
    return rng.integers(0, KEYS, int(rng.integers(0, 5)))


def _outputs(order: list[int]) -> dict[int, tuple[tf.Tensor, tf.Tensor]]:
    """For each layer, the placeholder of its keys and its output. Even layers are dense, odd ones sparse."""
    built = {}
    for layer in order:
        keys = tf.compat.v1.placeholder(tf.int64, [None])
        name = f"layer_{layer}"
        if layer % 2 == 0:
            output = sok.All2AllDenseEmbedding(
                None, DIM, 1, 1, dynamic_input=True, embedding_initializer=0.0, name=name
            )(keys)
        else:
            size = tf.size(keys, out_type=tf.int64)
            indices = tf.stack([tf.range(size), tf.zeros_like(keys)], axis=1)
            bags = tf.SparseTensor(indices, keys, tf.stack([size, 1]))
            output = sok.DistributedEmbedding(
                "sum",
                None,
                DIM,
                1,
                1,
                embedding_initializer=0.0,
                exchange=("rows", "sums")[layer // 4],
                name=name,
            )(bags)
        built[layer] = keys, output
    return built


def _train(inter_op_threads: int) -> dict[int, np.ndarray]:
    """Returns for each layer the rows of all keys after training."""
    import horovod.tensorflow as hvd

    hvd.init()
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=inter_op_threads,
        use_per_session_threads=True,
    )
    order = list(np.roll(range(LAYERS), 3 * hvd.rank()))
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        session.run(sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED))
        built = _outputs(order)
        loss = tf.add_n([tf.reduce_sum(output) for _, output in built.values()])
        step_op = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(loss)
        harness.initialize(session)
        for step in range(STEPS):
            session.run(step_op, {keys: _keys(layer, step, hvd.rank()) for layer, (keys, _) in built.items()})
        # Each rank looks up all keys, whichever rank owns the rows.
        outputs = {layer: output for layer, (_, output) in built.items()}
        rows = session.run(outputs, {keys: np.arange(KEYS) for keys, _ in built.values()})
    return {layer: values.reshape(KEYS, DIM) for layer, values in rows.items()}


def _train_with_few_and_many_threads() -> list[dict[int, np.ndarray]]:
    return [_train(threads) for threads in (1, 8)]


@pytest.mark.parametrize(("transport", "size"), [("gloo", 3), ("mpi", 2)])
def test_eight_layers_in_any_order(transport, size):
    results = ranks.run(_train_with_few_and_many_threads, ranks=size, transport=transport, timeout=240)
    for layer in range(LAYERS):
        # The gradient of a row is the number of times that its key occurred, which is exact in float32.
        came = sum(
            np.bincount(_keys(layer, step, rank), minlength=KEYS)
            for step in range(STEPS)
            for rank in range(size)
        )
        for result in results:
            for rows in result:
                np.testing.assert_array_equal(rows[layer], -np.tile(came[:, np.newaxis], DIM))
