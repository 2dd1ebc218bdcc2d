# Tags: slow
# Not on GPUs: launches of ranks and their exchanges
"""Ranks that die, wait for each other or disagree about a table or a group: errors that say so on all of
them, and no hang."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from sparse_operation_kit import native
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator


@contextlib.contextmanager
def _exchanges(names):
    """(ranks, session, feed, {name: outputs}) for exchanges of one word with each rank, in a new graph."""
    known, ops = communicator(), native.horovod_ops()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        words = tf.compat.v1.placeholder(tf.int64, [None])
        splits = tf.compat.v1.placeholder(tf.int32, [None])
        outputs = {name: ops.sok_exchange(words, splits, exchange_name=name) for name in names}
        yield known, session, {words: np.arange(known.size), splits: [1] * known.size}, outputs


def _die(way):
    with _exchanges(["ids"]) as (known, session, feed, outputs):
        for step in range(100):
            if step == 3 and known.rank == known.size - 1:
                if way == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("a reason")
            session.run(outputs, feed)


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
    names = ["users", "items", "shops", "barrier"]
    with _exchanges(names) as (known, session, feed, outputs):
        for _ in range(5):
            session.run(outputs, feed)
        sides = [outputs["users"], outputs["items"]], outputs["shops"]
        mine, other = sides if known.rank == 0 else sides[::-1]
        with pytest.raises(Exception) as caught:
            session.run(mine, feed)
        session.run(outputs["barrier"], feed)
        # The failed exchange meets its counterpart later: this must not break it or the next exchanges.
        session.run(other, feed)
        session.run(outputs["barrier"], feed)
        for exchange in session.run(outputs, feed).values():
            np.testing.assert_array_equal(exchange.received, [known.rank] * known.size)
        return type(caught.value).__name__, str(caught.value)


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
    with _exchanges(["users", "shops"]) as (known, session, feed, outputs):
        session.run(outputs, feed)
        first, second = ("users", "shops") if known.rank == 0 else ("shops", "users")
        late = threading.Timer(2.5, session.run, [outputs[second], feed])
        late.start()
        session.run(outputs[first], feed)
        late.join()


@pytest.mark.parametrize("seconds", [{0: "0", 1: "1"}, {0: "20", 1: "1"}])
def test_rank_0_decides_how_long(seconds):
    # By their own setting, the other ranks would give up after a second.
    ranks.run(_with_stall_seconds, seconds, ranks=2)


def _with_stall_seconds(seconds):
    os.environ["SOK_STALL_SECONDS"] = seconds[int(os.environ["HOROVOD_RANK"])]
    _two_threads_in_different_orders()


train = tf.compat.v1.train
KEYS = [1, 2, 3]


def _run(build: Callable[[bool], tf.Tensor]) -> None:
    """Runs a few steps of `build(whether this is rank 1)`."""
    with harness.graph_and_session() as session:
        step = build(communicator().rank == 1)
        harness.initialize(session)
        for _ in range(3):
            session.run(step)


def _lookup(name: str = "users", dim: int = 4, key_dtype: tf.DType = tf.int64, **options) -> tf.Tensor:
    variable = sok.EmbeddingVariable(name, dim, key_dtype=key_dtype, **options)
    return group.lookup_group([group.DenseLookup(variable, tf.constant(KEYS, key_dtype))])[0]


def _exchanged(how: str) -> tf.Tensor:
    ids = tf.sparse.from_dense(tf.constant([KEYS], tf.int64))
    lookup = group.SparseLookup(sok.EmbeddingVariable("users", 4), ids, "sum", exchange=how)
    return group.lookup_group([lookup])[0]


def _trained(optimizer: Callable) -> tf.Operation:
    return optimizer(0.1).minimize(tf.reduce_sum(_lookup()))


# What rank 1 does otherwise, and what the message of every rank says of the others and of rank 1.
DISAGREEMENTS = [
    (lambda odd: _lookup(dim=8 if odd else 4), "dim 4", "dim 8"),
    (lambda odd: _lookup(key_dtype=tf.int32 if odd else tf.int64), "int64 keys", "int32 keys"),
    (lambda odd: _lookup(capacity=50 if odd else None), "no bound", "capacity 50"),
    (lambda odd: _lookup(memory="host" if odd else "device"), "no bound", "rows in memory of the host"),
    (lambda odd: _lookup(initializer=0.5 if odd else None), r"uniform\(-0\.05", r"constant\(0\.5\)"),
    (lambda odd: _exchanged("sums" if odd else "rows"), "exchanged as rows", "exchanged as sums"),
    (
        lambda odd: _trained(train.AdagradOptimizer if odd else train.GradientDescentOptimizer),
        "trained by 'sgd'",
        "trained by 'adagrad'",
    ),
]


def check_both_sides_are_named_on_every_rank():
    rank = communicator().rank
    for build, *sides in DISAGREEMENTS:
        with pytest.raises(tf.errors.FailedPreconditionError) as error:
            _run(build)
        message = error.value.message
        assert "Ranks disagree about embedding variable 'users'" in message
        mine, other = sides if rank != 1 else reversed(sides)
        assert re.search(f"rank {rank} has 'users' [^;]*{mine}", message), message
        assert re.search(f"rank [^{rank}] has 'users' [^;]*{other}", message), message


def check_after_an_error_ranks_that_agree_go_on():
    _run(lambda odd: _lookup())


def _in_groups(of_one: bool) -> tf.Operation:
    variables = [sok.EmbeddingVariable(name, 4) for name in ("items", "users")]
    lookups = [group.DenseLookup(variable, tf.constant(KEYS, tf.int64)) for variable in variables]
    groups = [[lookup] for lookup in lookups] if of_one else [lookups]
    return tf.group(*[group.lookup_group(one) for one in groups])


def check_other_groups_on_a_rank_are_named_instead_of_a_hang():
    with pytest.raises(tf.errors.OpError) as error:
        _run(_in_groups)
    # A rank that ended would end Horovod before the others know what it waited for.
    with harness.graph_and_session() as session:
        session.run(communicator().allreduce(tf.constant(1.0), average=False, name="all have the message"))
    message = error.value.message
    assert "lookup of 'items', 'users'" in message, message
    assert re.search("rank 1 waits for [^;]*lookup of '(items|users)':", message), message


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


def test_on_three_ranks():
    """The output names the check that failed."""
    ranks.run_checks(CHECKS, ranks=3, env={"SOK_STALL_SECONDS": "3"})
