"""Assigning rows of the wrong shape, or a key twice, is an error and leaves the table unchanged."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import native

DIM = 2
NAME = "sound_table"


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([1, 2], np.zeros([2, DIM + 1])),
        ([1, 2], np.zeros([3, DIM])),
        ([1, 2], np.zeros([4])),
        ([[1, 2]], np.zeros([2, DIM])),
        ([1, 1], np.zeros([2, DIM])),  # a key twice
    ],
)
def test_wrong_shapes_and_repeated_keys_are_refused(keys, values):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name=NAME, dim=DIM, capacity=5)
        rows = tf.nn.embedding_lookup(table, [10, 20, 30])
        fed = tf.compat.v1.placeholder(tf.int64), tf.compat.v1.placeholder(tf.float32)
        assign = native.ops.sok_table_assign(table.handle, *fed)
        harness.initialize(session)
        session.run(rows)
        before = harness.table_contents(session, table)
        with pytest.raises(tf.errors.InvalidArgumentError, match=NAME):
            session.run(assign, dict(zip_equal(fed, (keys, values))))
        for was, now in zip_equal(before, harness.table_contents(session, table)):
            np.testing.assert_array_equal(now, was)
