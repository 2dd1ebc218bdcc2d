# Tags: versions
"""Lookups inside tf.cond, tf.while_loop and tf.function read rows; those in loops have no gradients.

`branch_gradients_test` is about gradients of branches.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat, deeprec, experiment
from sparse_operation_kit.deeprec import lookups, multi_dim

deeprec.uninstall()  # importing it has installed its names

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session


def in_cond(table, keys):
    return tf.cond(
        tf.compat.v1.placeholder_with_default(True, []),
        lambda: tf.nn.embedding_lookup(table, keys),
        lambda: tf.zeros([3, 2]),
    )


def in_while_loop(table, keys):
    def body(i, rows):
        return i + 1, rows + tf.nn.embedding_lookup(table, keys)

    return tf.while_loop(lambda i, _: i < 1, body, [tf.constant(0), tf.zeros([3, 2])])[1]


def in_function(table, keys):
    return tf.function(lambda given: tf.nn.embedding_lookup(table, given))(keys)


LOOKUPS = [in_cond, in_while_loop, in_function]


@pytest.mark.parametrize("look_up", LOOKUPS)
def test_rows_are_read_and_inserted(session, look_up):
    table = sok.EmbeddingVariable(name="table", dim=2)
    keys = tf.constant([5, 6, 5], tf.int64)
    inside = look_up(table, keys)
    outside = tf.nn.embedding_lookup(table, keys)
    harness.initialize(session)
    got = session.run(inside)
    assert session.run(table.size()) == 2
    np.testing.assert_array_equal(got, session.run(outside))


def in_cond_in_while_loop(table, keys):
    def body(i, rows):
        return i + 1, rows + in_cond(table, keys)

    return tf.while_loop(lambda i, _: i < 1, body, [tf.constant(0), tf.zeros([3, 2])])[1]


def in_while_loop_in_cond(table, keys):
    return tf.cond(
        tf.equal(keys[0], 5), lambda: in_while_loop(table, keys), lambda: tf.nn.embedding_lookup(table, keys)
    )


def in_function_in_while_loop(table, keys):
    look_up = tf.function(lambda: tf.nn.embedding_lookup(table, keys))

    def body(i, rows):
        return i + 1, rows + look_up()

    rows = tf.while_loop(lambda i, _: i < 1, body, [tf.constant(0), look_up()])[1]
    return rows


LOOPS = [in_while_loop, in_cond_in_while_loop, in_while_loop_in_cond, in_function_in_while_loop]


@pytest.mark.parametrize("look_up", LOOPS)
@pytest.mark.parametrize("taped", [False, True])
def test_a_gradient_from_a_loop_names_the_table(look_up, taped):
    if compat.VERSION < (2, 0):
        pytest.skip("TensorFlow 1.15 refuses this gradient itself, or has none")
    with harness.graph_and_session():
        table = sok.EmbeddingVariable(name="inner_table", dim=2)
        with pytest.raises(TypeError, match="inner_table.*tf.while_loop"):
            with tf.GradientTape() as tape:
                sum_of_rows = tf.reduce_sum(look_up(table, tf.constant([5, 6, 5], tf.int64)))
            tape.gradient(sum_of_rows, table) if taped else tf.gradients(sum_of_rows, table)


def test_a_gradient_from_a_loop_of_a_function_with_switches_names_the_table(monkeypatch):
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", False)
    with harness.graph_and_session():
        table = sok.EmbeddingVariable(name="inner_table", dim=2)
        rows = in_function_in_while_loop(table, tf.constant([5, 6, 5], tf.int64))
        with pytest.raises(TypeError, match="inner_table.*tf.while_loop"):
            tf.gradients(rows, table)


def test_a_gradient_leaves_a_function(session):
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=3.0)
    rows = in_function(table, tf.constant([5, 6, 5], tf.int64))
    (gradient,) = tf.gradients(tf.reduce_sum(tf.square(rows)), table)
    step = tf.compat.v1.train.GradientDescentOptimizer(0.25).apply_gradients([(gradient, table)])
    harness.initialize(session)
    np.testing.assert_array_equal(session.run(gradient.values), [[12, 12], [6, 6]])
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), [[0, 0], [1.5, 1.5], [0, 0]])


def group(table, ids):
    return sok.group_embedding_lookup([table], [ids.values])[0]


def group_of_bags(table, ids):
    return sok.group_embedding_lookup_sparse([table], [ids], ["sum"])[0]


def bags_of_dimensions(table, ids):
    return multi_dim.embedding_lookup_sparse_multi_dim(table, ids, None)


def rows_of_experiment(table, ids):
    return experiment.all2all_dense_embedding(table, ids.values)


# Lookups that have much of Python to convert, of bags with one id each.
LOOKUPS_OF_BAGS = [
    group,
    group_of_bags,
    rows_of_experiment,
    experiment.lookup_sparse,
    bags_of_dimensions,
    multi_dim.safe_embedding_lookup_multi_dim,
    lookups.fused_embedding_lookup_sparse,
    lookups.fused_safe_embedding_lookup_sparse,
]


@pytest.mark.parametrize("look_up", LOOKUPS_OF_BAGS)
def test_every_lookup_can_be_in_a_function(session, look_up):
    table = sok.EmbeddingVariable(name="table", dim=2)

    @tf.function
    def looked_up(keys):
        ids = tf.SparseTensor([[0, 0], [1, 0], [2, 0]], keys, [3, 1])
        return look_up(table, ids)

    keys = tf.constant([5, 6, 5], tf.int64)
    inside = looked_up(keys)
    outside = tf.nn.embedding_lookup(table, keys)
    harness.initialize(session)
    np.testing.assert_array_equal(*session.run([inside, outside]))


@pytest.mark.parametrize("look_up", LOOKUPS)
def test_a_stopped_gradient_is_none(session, look_up):
    table = sok.EmbeddingVariable(name="table", dim=2)
    inside = tf.stop_gradient(look_up(table, tf.constant([5, 6, 5], tf.int64)))
    assert tf.gradients(tf.reduce_sum(inside), table) == [None]


def test_rows_taken_into_a_branch_train(session):
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
    rows = tf.nn.embedding_lookup(table, [5, 6])
    wanted = tf.compat.v1.placeholder(tf.bool, [])
    chosen = tf.cond(wanted, lambda: 2.0 * rows, lambda: tf.zeros_like(rows))
    step = tf.compat.v1.train.GradientDescentOptimizer(0.25).minimize(tf.reduce_sum(chosen))
    harness.initialize(session)
    session.run(step, {wanted: False})
    np.testing.assert_array_equal(session.run(rows), np.ones([2, 2]))
    session.run(step, {wanted: True})
    np.testing.assert_array_equal(session.run(rows), np.full([2, 2], 0.5))


def test_a_gradient_inside_of_the_same_function(session):
    table = sok.EmbeddingVariable(name="table", dim=2)

    @tf.function
    def gradient_of(keys):
        (gradient,) = tf.gradients(tf.reduce_sum(tf.nn.embedding_lookup(table, keys)), table.handle)
        return gradient.values

    values = gradient_of(tf.constant([5, 6, 5], tf.int64))
    harness.initialize(session)
    np.testing.assert_array_equal(session.run(values), [[2, 2], [1, 1]])


def test_a_dataset_may_look_rows_up(session):
    table = sok.EmbeddingVariable(name="table", dim=2)
    data = tf.data.Dataset.range(4).map(lambda key: tf.nn.embedding_lookup(table, key))
    iterator = tf.compat.v1.data.make_initializable_iterator(data.batch(4))
    rows = iterator.get_next()
    harness.initialize(session)
    session.run(iterator.initializer)
    got = session.run(rows)
    np.testing.assert_array_equal(got, session.run(tf.nn.embedding_lookup(table, np.arange(4))))
