# Tags: versions
# Not on GPUs: a program; the tests gpu_* have one
"""Checks in a process that has disabled TensorFlow's v2 behavior, as scripts for TensorFlow 1 do.

Then variables are references, shapes have Dimensions, control flow uses switch ops, there are default graphs
and sessions, and Keras infers dtypes from inputs.
"""

import tempfile

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import experiment
from sparse_operation_kit.lookup import group

tf.disable_v2_behavior()


@pytest.fixture(autouse=True)
def _graph():
    tf.reset_default_graph()


def start(session):
    session.run(sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED))
    session.run(tf.global_variables_initializer())


def test_layers_give_floats_and_train():
    sparse = sok.DistributedEmbedding("sum", 100, 2, 1, 3, embedding_initializer=1.0)
    dense = sok.All2AllDenseEmbedding(100, 2, 1, 1, embedding_initializer=2.0)
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([5, 5, 6], tf.int64), [2, 3])
    outputs = [sparse(ids), dense(tf.constant([[[7]], [[7]]], tf.int64))]
    assert [output.dtype for output in outputs] == [tf.float32] * 2
    assert outputs[0].shape.as_list() == [2, 1, 2] and outputs[1].shape.as_list() == [2, 1, 1, 2]
    kernel = tf.get_variable("kernel", initializer=np.ones([4, 1], np.float32))
    flat = tf.concat([tf.reshape(output, [2, 2]) for output in outputs], axis=1)
    loss = tf.reduce_sum(tf.matmul(flat, kernel))
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss, tf.train.get_or_create_global_step())
    with tf.Session() as session:
        start(session)
        session.run(step)
        np.testing.assert_array_equal(harness.table_contents(session, sparse.embedding_variable)[0], [5, 6])
        for layer, want in ((sparse, [[0, 0], [0.5, 0.5]]), (dense, [[1, 1]])):
            np.testing.assert_array_equal(harness.table_contents(session, layer.embedding_variable)[1], want)
        np.testing.assert_array_equal(session.run(kernel), [[-0.5], [-0.5], [-1], [-1]])


def test_a_layer_of_half_precision():
    layer = sok.All2AllDenseEmbedding(100, 2, 1, 1, dynamic_input=True, dtype="float16")
    assert layer(tf.constant([1], tf.int64)).dtype == tf.float16


def test_a_saver_restores():
    table = sok.EmbeddingVariable(name="table", dim=2)
    plain = tf.get_variable("plain", initializer=1.0)
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2])) * plain
    step = sok.tf.keras.optimizers.LazyAdamOptimizer(0.1).minimize(loss)
    saver = tf.train.Saver()
    with tempfile.TemporaryDirectory() as directory, tf.Session() as session:
        start(session)
        session.run(step)
        path = saver.save(session, directory + "/model")
        session.run(step)
        want = harness.table_contents(session, table)[1]
        saver.restore(session, path)
        session.run(step)
        np.testing.assert_array_equal(harness.table_contents(session, table)[1], want)


def test_tensorflows_lookups_with_weights():
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=3.0)
    ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([5, 6], tf.int64), [1, 2])
    weights = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([1.0, 3.0]), [1, 2])
    pooled = tf.nn.embedding_lookup_sparse(table, ids, weights, combiner="mean")
    gradient = tf.gradients(tf.reduce_sum(pooled), table)[0]
    with tf.Session() as session:
        start(session)
        np.testing.assert_allclose(session.run(pooled), [[3.0, 3.0]])
        by_key = harness.gradient_by_key(session, table, gradient, np.array([5, 6]))
        np.testing.assert_allclose(by_key, [[0.25, 0.25], [0.75, 0.75]])


def test_a_branch_reads_rows_and_trains():
    table = sok.EmbeddingVariable(name="table", dim=2)
    taken = tf.placeholder(tf.bool, [])
    rows = tf.cond(taken, lambda: tf.nn.embedding_lookup(table, [5, 6, 5]), lambda: tf.zeros([3, 2]))
    step = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(rows))
    with tf.Session() as session:
        start(session)
        assert np.all(session.run(rows, {taken: False}) == 0)
        assert session.run(table.size()) == 0
        assert np.all(session.run(rows, {taken: True}) != 0)
        assert session.run(table.size()) == 2
        before = session.run(rows, {taken: True})
        session.run(step, {taken: False})
        np.testing.assert_array_equal(session.run(rows, {taken: True}), before)
        session.run(step, {taken: True})
        np.testing.assert_allclose(
            session.run(rows, {taken: True}), before - [[1.0], [0.5], [1.0]], rtol=1e-6
        )


def test_a_loop_reads_rows_but_has_no_gradient():
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)

    def body(i, total):
        return i + 1, total + tf.nn.embedding_lookup(table, [i, i + 1])

    total = tf.while_loop(lambda i, _: i < 3, body, [tf.constant(0, tf.int64), tf.zeros([2, 2])])[1]
    with tf.Session() as session:
        start(session)
        np.testing.assert_array_equal(session.run(total), np.full([2, 2], 3.0))
        assert session.run(table.size()) == 4
    with pytest.raises(TypeError):
        tf.gradients(tf.reduce_sum(total), table)


def test_the_experiment_module():
    value = np.arange(10, dtype=np.float32).reshape(5, 2)
    fixed = experiment.Variable(value, name="fixed")
    grown = experiment.DynamicVariable(3, initializer="2", name="grown")
    ids = tf.RaggedTensor.from_row_splits(tf.constant([1, 2, 3], tf.int64), [0, 2, 3])
    outputs = experiment.lookup_sparse([fixed, grown], [ids, ids], combiners=["sum", "mean"])
    optimizer = experiment.SGD(lr=0.5)
    gradients = tf.gradients(tf.add_n([tf.reduce_sum(output) for output in outputs]), [fixed, grown])
    step = optimizer.apply_gradients(zip_equal(gradients, [fixed, grown]))
    exported = experiment.export(grown)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(outputs)[0], [value[1] + value[2], value[3]])
        session.run(step)
        value[1:4] -= 0.5
        np.testing.assert_array_equal(session.run(fixed), value)
        np.testing.assert_array_equal(fixed.eval(session), value)
        keys, rows = session.run(exported)
        assert keys.tolist() == [1, 2, 3] and rows[:, 0].tolist() == [1.75, 1.75, 1.5]


def test_rows_by_number_and_keys_of_rank_two():
    layer = sok.All2AllDenseEmbedding(4, 2, 3, 1, embedding_initializer=1.0)
    rows = layer(tf.constant([[7, 8, 7]], tf.int64))
    assert rows.shape.as_list() == [1, 3, 2]
    optimizer = sok.optimizers.Adam(0.5)
    step = optimizer.minimize(tf.reduce_sum(rows))
    with tf.Session() as session:
        session.run(sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED))
        session.run([layer.var.initializer, optimizer.initializer])
        session.run(step)
        np.testing.assert_allclose(
            session.run(layer.var.read_value()), [[0.5] * 2] * 2 + [[0] * 2] * 2, atol=1e-5
        )


def test_a_group():
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
    ids = tf.RaggedTensor.from_row_splits(tf.constant([1, 2, 3], tf.int64), [0, 2, 2, 3])
    lookups = [
        group.RaggedLookup(table, ids, "sqrtn"),
        group.DenseLookup(table, tf.constant([[4]], tf.int64)),
    ]
    pooled, row = group.lookup_group(lookups)
    with tf.Session() as session:
        start(session)
        np.testing.assert_allclose(session.run(pooled)[:, 0], [np.sqrt(2), 0, 1], rtol=1e-6)
        assert session.run(row).shape == (1, 1, 2)


def test_a_prefetch_reads_references_in_the_step():
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
    scale = tf.get_variable("scale", initializer=1.0)

    def look_up(key):
        return tf.nn.embedding_lookup(table, key), scale * tf.cast(key, tf.float32), key

    iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.range(4))
    prefetch = sok.LookupPrefetch(iterator, look_up)
    row, scaled, key = prefetch.outputs
    with tf.control_dependencies([scaled]):
        grow = tf.assign_add(scale, 1.0)
    step = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(row), var_list=[table])
    with tf.Session() as session:
        start(session)
        session.run(prefetch.prime)
        for number in range(4):
            got = session.run([key, scaled, step, grow, prefetch.advance])
            assert got[:2] == [number, number * (number + 1)], got
        np.testing.assert_array_equal(harness.table_contents(session, table)[1], np.full([4, 2], 0.5))
