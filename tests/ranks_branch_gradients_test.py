"""Lookups in branches over ranks: as in one process if all take the same branch, and errors if not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

import harness
import ranks
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit.ranks.communicator import communicator

v1 = tf.compat.v1
RANKS = 2
DIM = 3
# Whether the first and the second condition hold, in each step.
STEPS = [(False, False), (True, False), (True, True), (False, True), (True, True)]


def _batch(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, 30, 8 * RANKS)


def _rows(model: dict) -> tf.Tensor:
    """Rows [batch, DIM], of one table in both branches and outside, and of another in a nested branch."""
    users, items, keys = (model[name] for name in ("users", "items", "keys"))

    def in_both() -> tf.Tensor:
        of_users, of_items = sok.group_embedding_lookup([users, items], [keys, keys + 1])
        return of_users * of_items

    def inner() -> tf.Tensor:
        return tf.cond(model["second"], in_both, lambda: tf.nn.embedding_lookup(users, keys))

    chosen = tf.cond(model["first"], inner, lambda: tf.nn.embedding_lookup(users, 2 * keys))
    return chosen + tf.nn.embedding_lookup(users, keys - 5)


def _train() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Keys and rows of both tables after each step, sorted by key."""
    ranks_here = communicator()
    part = slice(8 * ranks_here.rank, 8 * ranks_here.rank + 8) if ranks_here.size > 1 else slice(None)
    with harness.graph_and_session() as session:
        model = {name: v1.placeholder(tf.bool, []) for name in ("first", "second")}
        model["keys"] = v1.placeholder(tf.int64, [None])
        tables = [sok.EmbeddingVariable(name, DIM, initializer=0.5) for name in ("users", "items")]
        model["users"], model["items"] = tables
        loss = tf.reduce_sum(tf.square(_rows(model)))
        step = sok.DistributedOptimizer(v1.train.AdamOptimizer(0.01), op="sum").minimize(loss)
        harness.initialize(session)
        for number, (first, second) in enumerate(STEPS):
            feed = {model["first"]: first, model["second"]: second, model["keys"]: _batch(number)[part]}
            session.run(step, feed)
            for keys, rows in harness.contents_of_tables(session, tables):
                order = np.argsort(keys)
                yield keys[order], rows[order]


def _train_both_ways() -> list[list[tuple[np.ndarray, np.ndarray]]]:
    results = []
    for with_functions in (False, True):
        control_flow_util.ENABLE_CONTROL_FLOW_V2 = with_functions
        results.append(list(_train()))
    return results


def _take_different_branches() -> str:
    with harness.graph_and_session() as session:
        users, items = (sok.EmbeddingVariable(name, DIM) for name in ("users", "items"))
        rows = tf.cond(
            tf.equal(communicator().rank, v1.placeholder_with_default(0, [])),
            lambda: tf.nn.embedding_lookup(users, [1]),
            lambda: tf.nn.embedding_lookup(items, [1]),
        )
        step = sok.DistributedOptimizer(v1.train.AdamOptimizer(0.01), op="sum").minimize(tf.reduce_sum(rows))
        # A rank that ended would end Horovod before the others know what it waited for.
        together = communicator().allreduce(tf.constant(1.0), average=False, name="all have the message")
        harness.initialize(session)
        with pytest.raises(tf.errors.FailedPreconditionError) as error:
            session.run(step)
        session.run(together)
        return error.value.message


def test_as_in_one_process():
    results = ranks.run(_train_both_ways, ranks=RANKS)
    want = list(_train())
    for of_rank in results:
        for of_way in of_rank:
            for (keys, rows), (want_keys, want_rows) in zip_equal(of_way, want):
                np.testing.assert_array_equal(keys, want_keys)
                np.testing.assert_allclose(rows, want_rows, rtol=1e-5, atol=1e-6)


def test_ranks_that_take_different_branches_get_an_error():
    for message in ranks.run(_take_different_branches, ranks=RANKS, env={"SOK_STALL_SECONDS": "2"}):
        waits = "rank 0 waits for 'lookup of 'users': ids'; rank 1 waits for 'lookup of 'items': ids'"
        assert waits in message, message
