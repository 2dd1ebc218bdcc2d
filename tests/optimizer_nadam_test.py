"""Keras' Nadam on tables: the momentum schedule, which is not in slots."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat

pytestmark = pytest.mark.cases_on_gpu(2)
legacy = compat.legacy_keras_optimizers()[0][1]


def _minimized(optimizer, tables, others=()):
    loss = sum(tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, [5, 7]))) for table in tables)
    for other in others:
        loss *= tf.reduce_sum(other)
    return tf.group(optimizer.get_updates(loss, [*tables, *others]))


def _momentum_cache(optimizer):
    (cache,) = [variable for variable in optimizer.variables() if "momentum_cache" in variable.name]
    return cache


@pytest.mark.parametrize("tables", [1, 3])
@pytest.mark.parametrize("others", [0, 2])
def test_the_momentum_schedule_advances_once_per_step(tables, others):
    with harness.graph_and_session() as session:
        optimizer = legacy.Nadam(0.1, beta_1=0.8, schedule_decay=1.5)
        step = _minimized(
            optimizer,
            [sok.EmbeddingVariable(name=f"table{i}", dim=2, initializer=1.0) for i in range(tables)],
            [tf.Variable([1.0, 2.0], **compat.AS_RESOURCE) for _ in range(others)],
        )
        cache = _momentum_cache(optimizer)
        assert cache in tf.compat.v1.global_variables()
        harness.initialize(session)
        product = 1.0
        for count in range(1, 5):
            session.run(step)
            product *= 0.8 * (1 - 0.5 * 0.96 ** (1.5 * count))
            np.testing.assert_allclose(session.run(cache), product, rtol=1e-5)


def test_slots_are_made_for_ordinary_variables_only():
    with harness.graph_and_session():
        table = sok.EmbeddingVariable(name="table", dim=2)
        dense = tf.Variable([1.0, 2.0], **compat.AS_RESOURCE)
        optimizer = legacy.Nadam(0.1)
        _minimized(optimizer, [table], [dense])
        assert optimizer.get_slot(table, "m") is None
        assert optimizer.get_slot(dense, "m").shape == [2]
        shapes = sorted(tuple(variable.shape) for variable in optimizer.variables())
        assert shapes == [(), (), (2,), (2,)]  # iterations and momentum, m and v


def _trained(saved_as, steps, restored_from=None):
    """The rows after some steps, each of which touches some rows; every fourth step writes a checkpoint."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name="table", dim=2, initializer="random_normal")
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids)))
        step = tf.group(legacy.Nadam(0.1, schedule_decay=2.0).get_updates(loss, [table]))
        saver = tf.compat.v1.train.Saver()
        harness.initialize(session)
        if restored_from is not None:
            saver.restore(session, restored_from)
        for number in steps:
            session.run(step, {ids: np.random.default_rng(number).integers(0, 20, 5)})
            if number % 4 == 3:
                saver.save(session, f"{saved_as}-{number}")
        return session.run(tf.nn.embedding_lookup(table, tf.range(20, dtype=tf.int64)))


def test_a_restart_goes_on_as_the_training_did(tmp_path):
    straight = _trained(tmp_path / "straight", range(12))
    for last in (3, 7):
        restarted = _trained(tmp_path / "again", range(last + 1, 12), str(tmp_path / f"straight-{last}"))
        np.testing.assert_array_equal(restarted, straight)
