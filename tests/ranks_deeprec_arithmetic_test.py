"""DeepRec's arithmetic over ranks: the tables of one process that has the batches of all ranks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
from device_of_tests import sized
from sparse_operation_kit import deeprec
from sparse_operation_kit.lookup import group
from sparse_operation_kit.optimizers import fused_updates

v1 = tf.compat.v1
KEYS = np.concatenate([harness.HOSTILE_KEYS, np.arange(-4, 12)])
STEPS = 9
OPTIMIZERS = {
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.4),
    "adam": lambda: v1.train.AdamOptimizer(0.05),
    "adam_async": lambda: deeprec.AdamAsyncOptimizer(0.05),
}

# The optimizer, and whether updates are fused.
CASES = [("ftrl", True), ("adam", True), ("adam_async", True), ("adam_async", False)]


def _batch(rank: int, step: int) -> np.ndarray:
    """Keys of a rank. Some ranks have none, and in step 4 no rank has any."""
    rng = np.random.default_rng([rank, step])
    if step == 4 or (step + rank) % 3 == 1:
        return np.zeros([0], np.int64)
    return rng.choice(KEYS, 10)


def _bags_of_one(ids: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_splits(ids, tf.range(tf.size(ids, out_type=tf.int64) + 1))


def _train(name: str, of_ranks: list[int], fused: bool) -> tuple[list[np.ndarray], list[float]]:
    """The rows of all keys after training with the batches of some ranks, and the powers of Adam.

    With fused updates, TensorFlow draws the initial rows of one table, and those of the other are given.
    """
    seed = 3 if fused else None
    option = deeprec.EmbeddingVariableOption(
        filter_option=deeprec.CounterFilter(3, before_lookup=True),
        init_option=deeprec.InitializerOption(
            v1.truncated_normal_initializer(seed=seed), default_value_dim=5
        ),
    )
    second_option = deeprec.InitializerOption([0.5, -0.25]) if fused else option.init_option
    with harness.graph_and_session() as session, fused_updates(fused):
        tables = [deeprec.get_embedding_variable("a", 3, ev_option=option)]
        tables.append(
            deeprec.get_embedding_variable(
                "b", 2, ev_option=deeprec.EmbeddingVariableOption(init_option=second_option)
            )
        )
        ids = v1.placeholder(tf.int64, [None])
        bags = _bags_of_one(ids)
        # The second table has rows in the steps with even numbers only.
        second = v1.placeholder(tf.int64, [None])
        seconds = _bags_of_one(second)
        rows = deeprec.group_embedding_lookup_sparse(tables, [bags, seconds], ["sum", "sum"])
        loss = tf.add_n([tf.reduce_sum(tf.square(one - 0.25)) for one in rows])
        train = OPTIMIZERS[name]().minimize(loss)
        every = [group.DenseLookup(table, tf.constant(KEYS)) for table in tables]
        every = group.lookup_group(every, training=False)
        powers = sorted(
            (one for one in v1.global_variables() if "beta" in one.name and name == "adam_async"),
            key=lambda one: one.name,
        )
        harness.initialize(session)
        for step in range(STEPS):
            keys = np.concatenate([_batch(rank, step) for rank in of_ranks])
            session.run(train, {ids: keys, second: keys if step % 2 == 0 else keys[:0]})
        return session.run(every), [float(one) for one in session.run(powers)]


def _train_all() -> list:
    import horovod.tensorflow as hvd

    hvd.init()
    deeprec.install()
    return [_train(name, [hvd.rank()], fused) for name, fused in CASES]


@pytest.mark.parametrize(("transport", "size"), sized([("mpi", 2), ("gloo", 3)], [("gloo", 2)]))
def test_ranks_train_as_one_process(transport, size):
    deeprec.install()
    found = ranks.run(_train_all, ranks=size, transport=transport)
    for number, (name, fused) in enumerate(CASES):
        rows, powers = _train(name, list(range(size)), fused)
        for of_rank in found:
            harness.assert_close_arrays(
                of_rank[number][0], rows, rtol=1e-5, atol=1e-6, err_msg=f"{name}, {fused}"
            )
            assert of_rank[number][1] == powers
        if name == "adam_async":
            # Five of the nine steps look up the second table; in one of these, no rank has a key.
            np.testing.assert_allclose(np.log(powers[2:]) / np.log([0.9, 0.999]) - 1, [4, 4], rtol=1e-2)
