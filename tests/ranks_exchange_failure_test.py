"""Ranks that die, wait for each other or build in other orders: a message, or no deadlock, and no hang."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok


def _exchanges(names):
    """(Horovod's module, session, feed, {name: outputs}) for exchanges of one word with each rank."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    from sparse_operation_kit import native

    hvd.init()
    words = tf.compat.v1.placeholder(tf.int64, [None])
    splits = tf.compat.v1.placeholder(tf.int32, [None])
    ops = native.horovod_ops()
    outputs = {name: ops.sok_exchange(words, splits, exchange_name=name) for name in names}
    feed = {words: np.arange(hvd.size()), splits: [1] * hvd.size()}
    return hvd, tf.compat.v1.Session(), feed, outputs


def _in_graph(function):
    import tensorflow as tf

    with tf.Graph().as_default():
        return function()


def _die(way):
    def steps():
        hvd, session, feed, outputs = _exchanges(["ids"])
        for step in range(100):
            if step == 3 and hvd.rank() == hvd.size() - 1:
                if way == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("a reason")
            session.run(outputs, feed)

    _in_graph(steps)


@pytest.mark.parametrize("way", ["kill", "raise"])
@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_a_rank_that_dies_ends_the_others_with_a_message(transport, way):
    size = 3 if transport == "gloo" else 2
    job = ranks.launch(_die, way, ranks=size, transport=transport)
    assert job.returncode != 0 and not job.timed_out, job.report()
    if way == "raise":
        assert "RuntimeError: a reason" in job.outputs[-1], job.report()
    if transport == "gloo":
        # mpirun kills the other ranks itself with its own message, possibly before they print theirs.
        for rank in range(2):
            assert f"exchange 'ids' on rank {rank} of {size} failed: " in job.outputs[rank], job.report()
    else:
        assert "mpirun" in job.outputs[0], job.report()


def _run_different_exchanges():
    """Rank 0 waits for two exchanges, the others for a third; returns the error's type and message."""

    def steps():
        hvd, session, feed, outputs = _exchanges(["users", "items", "shops", "barrier"])
        for _ in range(5):
            session.run(outputs, feed)
        sides = [outputs["users"], outputs["items"]], outputs["shops"]
        mine, other = sides if hvd.rank() == 0 else sides[::-1]
        with pytest.raises(Exception) as caught:
            session.run(mine, feed)
        session.run(outputs["barrier"], feed)
        # The failed exchange meets its counterpart later: this must not break it or the next exchanges.
        session.run(other, feed)
        session.run(outputs["barrier"], feed)
        for exchange in session.run(outputs, feed).values():
            np.testing.assert_array_equal(exchange.received, [hvd.rank()] * hvd.size())
        return type(caught.value).__name__, str(caught.value)

    return _in_graph(steps)


@pytest.mark.parametrize(("transport", "size"), [("gloo", 3), ("mpi", 2)])
def test_ranks_that_wait_for_each_other_fail_naming_both_sides(transport, size):
    results = ranks.run(
        _run_different_exchanges, ranks=size, transport=transport, env={"SOK_STALL_SECONDS": "1"}
    )
    others = "ranks 1, 2 wait" if size == 3 else "rank 1 waits"
    for rank, (kind, error) in enumerate(results):
        assert kind == "FailedPreconditionError"
        assert f"on rank {rank} of {size} failed: The ranks wait for each other: " in error
        assert f"rank 0 waits for 'items', 'users'; {others} for 'shops'." in error


def _two_threads_in_different_orders():
    """Ranks wait for two exchanges in different orders, until a second thread on each runs the other."""

    def steps():
        hvd, session, feed, outputs = _exchanges(["users", "shops"])
        session.run(outputs, feed)
        first, second = ("users", "shops") if hvd.rank() == 0 else ("shops", "users")
        late = threading.Timer(2.5, session.run, [outputs[second], feed])
        late.start()
        session.run(outputs[first], feed)
        late.join()

    _in_graph(steps)


@pytest.mark.parametrize("seconds", [{0: "0", 1: "1"}, {0: "20", 1: "1"}])
def test_rank_0_decides_how_long(seconds):
    # By their own setting, the other ranks would give up after a second.
    job = ranks.launch(_with_stall_seconds, seconds, ranks=2)
    assert job.returncode == 0, job.report()


def _with_stall_seconds(seconds):
    os.environ["SOK_STALL_SECONDS"] = seconds[int(os.environ["HOROVOD_RANK"])]
    _two_threads_in_different_orders()


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
