# Not on GPUs: another engine
"""Tables of an engine from a separate library, beside tables of the CPU engine."""

from __future__ import annotations

import ctypes
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import native
from sparse_operation_kit.lookup import group

DIM = 2
session = harness.session


@pytest.fixture(scope="module", autouse=True)
def sketch_engine():
    """Loads the sketch engine of `cc/engine/contract`, which registers itself with the op library."""
    ctypes.CDLL(native.library_path(), mode=ctypes.RTLD_GLOBAL)
    builds = pathlib.Path(os.environ.get("SOK_BAZEL_BIN", "."))
    return ctypes.CDLL(str((builds / "cc/engine/contract/sketch_engine.so").absolute()))


def moved_to(table, engine):
    """An op that makes the variable's table again, with the engine of that name."""
    return native.ops.sok_initialize_table(table.handle, [], dim=table.dim, engine=engine)


def test_lookups_and_updates_run_on_the_engine_of_their_table():
    results = []
    for engine in ("cpu", "sketch"):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable(name="clicks", dim=DIM)
            ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([5, -6, 5], tf.int64), [2, 2])
            pooled = tf.nn.embedding_lookup_sparse(table, ids, None, combiner="mean")
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
            with sok.optimizers.fused_updates(False):
                step = optimizer.minimize(tf.reduce_sum(pooled * [[1.0, 2.0], [3.0, 4.0]]))
            harness.initialize(session)
            session.run(moved_to(table, engine))
            before = session.run(pooled)
            session.run(step)
            session.run(step)
            assert session.run(table.size()) == 2
            results.append((before, session.run(pooled)))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)
    assert np.all(results[0][0] != results[0][1])


def test_an_unsupported_call_is_an_error_with_both_names(session):
    table = sok.EmbeddingVariable(name="clicks", dim=DIM)
    rows = tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64))
    step = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
    harness.initialize(session)
    session.run(moved_to(table, "sketch"))
    with pytest.raises(tf.errors.UnimplementedError, match="'clicks': the engine 'sketch' does not"):
        session.run(step)


def test_an_unknown_engine(session):
    table = sok.EmbeddingVariable(name="clicks", dim=DIM)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="'clicks': There is no engine 'abacus'; known are 'cpu'"
    ):
        session.run(moved_to(table, "abacus"))


def test_a_group_of_tables_of_two_engines(session):
    tables = [sok.EmbeddingVariable(name=name, dim=DIM) for name in ("clicks", "views")]
    ids = tf.constant([1, 2], tf.int64)
    outputs = group.lookup_group([group.DenseLookup(table, ids) for table in tables])
    harness.initialize(session)
    session.run(outputs)
    session.run(moved_to(tables[1], "sketch"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="'clicks' and 'views'.*'cpu'.*'sketch'"):
        session.run(outputs)


def test_the_gradient_of_a_lookup_in_a_table_of_another_engine(session):
    table = sok.EmbeddingVariable(name="clicks", dim=DIM)
    rows = tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64))
    with tf.control_dependencies([rows]):
        moved = moved_to(table, "sketch")
    with tf.control_dependencies([moved]):
        late = tf.ones([2, DIM])
    (gradient,) = tf.gradients(rows, [table], grad_ys=late)
    harness.initialize(session)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not the plan of a SokGroupLookup"):
        session.run(gradient.values)
