"""sok.optimizers.Adam: Keras' arguments on TensorFlow's AdamOptimizer."""

import numpy as np
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok

Adam = sok.optimizers.Adam


def _reference(lr, beta1=0.9, beta2=0.999, epsilon=1e-7):
    return tf.compat.v1.train.AdamOptimizer(lr, beta1, beta2, epsilon)


def test_trains_table_and_dense_layer_as_tensorflows():
    assert optimizer_parity.worst_deviation(lambda lr: Adam(lr), _reference) < 5e-6


def test_arguments():
    deviation = optimizer_parity.worst_deviation(
        lambda lr: Adam(learning_rate=lr, beta_1=0.7, beta_2=tf.constant(0.9), epsilon=1e-3, name="Mine"),
        lambda lr: _reference(lr, 0.7, 0.9, 1e-3),
    )
    assert deviation < 5e-6


def test_learning_rate_may_be_a_function():
    deviation = optimizer_parity.worst_deviation(
        lambda lr: Adam(lambda: 2 * lr), lambda lr: _reference(2 * lr), steps=20
    )
    assert deviation < 5e-6


def _halving(step):
    return 0.1 * tf.pow(0.5, tf.cast(step, tf.float32) / 10.0)


def test_learning_rate_may_depend_on_the_step():
    def make_reference(lr):
        step = tf.Variable(0, dtype=tf.int64)
        optimizer = _reference(lambda: _halving(step))
        finish = optimizer._finish

        def count(update_ops, name_scope):
            with tf.control_dependencies(update_ops):
                counted = step.assign_add(1).op
            return finish([*update_ops, counted], name_scope)

        optimizer._finish = count
        return optimizer

    assert optimizer_parity.worst_deviation(lambda lr: Adam(_halving), make_reference) < 5e-6


def test_learning_rate_may_be_a_keras_schedule():
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)
    deviation = optimizer_parity.worst_deviation(
        lambda lr: Adam(schedule), lambda lr: Adam(_halving), steps=20
    )
    assert deviation < 5e-6


def test_iterations_count_steps_and_are_saved():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name="table", dim=2)
        optimizer = Adam()
        with tf.name_scope("somewhere"):
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1]))
            step = optimizer.minimize(loss, var_list=[table])
        assert optimizer.iterations is optimizer.iterations
        assert optimizer.iterations.name == "Adam/iterations:0"
        assert any(variable is optimizer.iterations for variable in optimizer.variables())
        assert any(variable is optimizer.iterations for variable in tf.compat.v1.global_variables())
        harness.initialize(session)
        for _ in range(3):
            session.run(step)
        assert session.run(optimizer.iterations) == 3


def test_each_graph_has_its_own_counters():
    optimizer = Adam(0.1)
    for _ in range(2):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
            rows = tf.nn.embedding_lookup(table, [1])
            step = optimizer.minimize(tf.reduce_sum(rows), var_list=[table])
            harness.initialize(session)
            session.run(step)
            np.testing.assert_allclose(session.run(rows), [[0.9, 0.9]], rtol=1e-5)
            assert session.run(optimizer.iterations) == 1


def test_learning_rate_is_what_was_given():
    assert Adam(0.25).learning_rate == 0.25
    assert Adam(_halving).learning_rate is _halving
