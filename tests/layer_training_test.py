# Tags: versions
"""Layers with training on and off, and a model with layers that trains like one of tf.Variables."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from device_of_tests import cpu_only
from same_length import zip_equal

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

SGD = tf.compat.v1.train.GradientDescentOptimizer


def dynamic_layer(dim=2, initializer=0.0, **kwargs):
    return sok.All2AllDenseEmbedding(
        1000, dim, 1, 1, dynamic_input=True, embedding_initializer=initializer, **kwargs
    )


def sparse_ids(keys):
    """A SparseTensor with one key per row."""
    indices = np.stack([np.arange(len(keys)), np.zeros(len(keys))], axis=1).astype(np.int64)
    return tf.SparseTensor(indices, tf.constant(keys, tf.int64), [len(keys), 1])


def look_up(kind, layer_initializer, keys, training):
    """(variable, rows of `keys`) of a new layer of the kind."""
    if kind == "distributed":
        layer = sok.DistributedEmbedding("sum", 1000, 2, 1, 1, embedding_initializer=layer_initializer)
        return layer.embedding_variable, tf.reshape(layer(sparse_ids(keys), training=training), [-1, 2])
    layer = dynamic_layer(initializer=layer_initializer)
    return layer.embedding_variable, layer(tf.constant(keys, tf.int64), training=training)


@pytest.mark.parametrize("kind", ["distributed", "all2all"])
def test_a_training_lookup_inserts_without_an_optimizer(session, kind):
    table, rows = look_up(kind, None, [7, 8, 7], True)
    harness.initialize(session)
    first = session.run(rows)
    assert session.run(table.size()) == 2
    keys, stored = harness.table_contents(session, table)
    np.testing.assert_array_equal(keys, [7, 8])
    np.testing.assert_array_equal(stored, first[:2])


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("kind", ["distributed", "all2all"])
def test_without_training_unseen_keys_read_their_initial_values_and_stay_out(session, kind, as_tensor):
    training = tf.constant(False) if as_tensor else False
    table, rows = look_up(kind, "random_normal", [7, 8, 7, 9], training)
    harness.initialize(session)
    first = session.run(rows)
    assert session.run(table.size()) == 0
    np.testing.assert_array_equal(session.run(rows), first)
    np.testing.assert_array_equal(first[0], first[2])
    inserted = session.run(tf.nn.embedding_lookup(table, [7, 8, 7, 9]))
    np.testing.assert_array_equal(inserted, first)
    assert session.run(table.size()) == 3


@pytest.mark.parametrize("kind", ["distributed", "all2all"])
def test_gradients_of_a_lookup_without_training_are_ignored(session, kind):
    table, rows = look_up(kind, 1.0, [7, 8], False)
    ((gradient, _),) = SGD(1.0).compute_gradients(tf.reduce_sum(rows), var_list=[table])
    step = SGD(1.0).apply_gradients([(gradient, table)])
    seen = tf.nn.embedding_lookup(table, [7])
    harness.initialize(session)
    session.run(seen)
    assert session.run(gradient.values).shape == (0, 2)
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), np.ones([2, 2]))
    assert session.run(table.size()) == 1


def test_training_may_be_fed(session):
    layer = dynamic_layer()
    training = tf.compat.v1.placeholder(tf.bool, [])
    keys = tf.compat.v1.placeholder(tf.int64, [None])
    rows = layer(keys, training=training)
    step = SGD(1.0).minimize(tf.reduce_sum(rows))
    harness.initialize(session)
    session.run(step, {training: True, keys: [1, 2]})
    session.run(step, {training: False, keys: [1, 3]})
    assert session.run(layer.embedding_variable.size()) == 2
    got = session.run(rows, {training: False, keys: [1, 2, 3]})
    np.testing.assert_array_equal(got[:, 0], [-1, -1, 0])


def test_training_and_frozen_lookups_of_one_table_in_one_loss(session):
    layer = dynamic_layer()
    live = layer(tf.constant([1, 2], tf.int64))
    frozen = layer(tf.constant([1, 5], tf.int64), training=False)
    step = SGD(1.0).minimize(tf.reduce_sum(live) + 10.0 * tf.reduce_sum(frozen))
    harness.initialize(session)
    session.run(step)
    keys, rows = harness.table_contents(session, layer.embedding_variable)
    assert dict(zip_equal(keys.tolist(), rows[:, 0].tolist())) == {1: -1.0, 2: -1.0}


def test_layers_made_alike_have_tables_of_their_own(session):
    first, second = dynamic_layer(initializer=None), dynamic_layer(initializer=None)
    assert first.embedding_variable.m_var_name != second.embedding_variable.m_var_name
    rows = [layer(tf.constant([1], tf.int64)) for layer in (first, second)]
    harness.initialize(session)
    one, other = session.run(rows)
    assert not np.any(one == other)


def test_a_layer_lists_its_variable(session):
    layer = dynamic_layer()
    layer(tf.constant([1], tf.int64))
    assert [id(v) for v in layer.trainable_variables] == [id(layer.embedding_variable)]
    assert [id(v) for v in layer.trainable_weights] == [id(layer.embedding_variable)]
    assert [id(v) for v in tf.compat.v1.trainable_variables()] == [id(layer.embedding_variable)]


def test_a_layer_that_is_not_trainable(session):
    layer = dynamic_layer(trainable=False)
    layer(tf.constant([1], tf.int64))
    assert not tf.compat.v1.trainable_variables()
    assert [id(v) for v in tf.compat.v1.global_variables()] == [id(layer.embedding_variable)]


def test_a_name_names_the_table(session):
    assert dynamic_layer(name="clicked_items").embedding_variable.m_var_name.startswith("clicked_items/")


v1 = tf.compat.v1


@cpu_only("threads are the CPU engine's")
def test_large_batches_repeat_bit_for_bit_with_any_number_of_threads():
    """Batches are so large that every parallel loop is split."""
    keys = harness.zipf_keys(np.random.default_rng(3), 60_000, vocabulary=20_000)
    splits = np.unique(np.random.default_rng(4).integers(0, len(keys), 5000))
    splits = np.concatenate([[0], splits, [len(keys)]])
    results = []
    for threads in (1, 2, 3, 4):
        with harness.graph_and_session(threads) as session:
            table = sok.EmbeddingVariable(name="table", dim=17)
            row_ids = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
            ids = tf.SparseTensor(
                np.stack([row_ids, np.arange(len(keys))], 1), keys, [len(splits) - 1, len(keys)]
            )
            pooled = sok.lookup.group.lookup_group([sok.lookup.group.SparseLookup(table, ids, "mean")])[0]
            step = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(pooled)))
            harness.initialize(session)
            first = session.run([pooled, step])[0]
            session.run(step)
            stored_keys, rows = harness.table_contents(session, table)
            results.append((first, stored_keys, rows))
    for other in results[1:]:
        harness.assert_equal_arrays(other, results[0])
