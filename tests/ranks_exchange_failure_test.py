"""Ranks that die or wait for each other: a message, and no hang."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

import ranks


def _exchanges(names):
    """(Horovod's module, session, feed, {name: outputs}) for exchanges of one word with each rank."""
    import horovod.tensorflow as hvd

    from sparse_operation_kit import native

    hvd.init()
    words = tf.compat.v1.placeholder(tf.int64, [None])
    splits = tf.compat.v1.placeholder(tf.int32, [None])
    ops = native.horovod_ops()
    outputs = {name: ops.sok_exchange(words, splits, exchange_name=name) for name in names}
    feed = {words: np.arange(hvd.size()), splits: [1] * hvd.size()}
    return hvd, tf.compat.v1.Session(), feed, outputs


def _in_graph(function):

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
