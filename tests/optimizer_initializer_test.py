"""An optimizer's own variables: `initializer`, the op that initializes them, and Adam's count of steps."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat

pytestmark = pytest.mark.cases_on_gpu(2)

LossScaleOptimizer = sok.tf.keras.mixed_precision.LossScaleOptimizer

OPTIMIZERS = {
    "adam": lambda: sok.optimizers.Adam(0.1),
    "loss scale over adam": lambda: LossScaleOptimizer(sok.optimizers.Adam(0.1), "dynamic"),
    "loss scale over sgd": lambda: LossScaleOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1), 1024),
}
for _, _keras in compat.legacy_keras_optimizers():
    OPTIMIZERS["loss scale over Keras"] = lambda keras=_keras: LossScaleOptimizer(keras.Adam(0.1), 1024)


def model(optimizer):
    """(table, dense variable, training op) of a small model."""
    table = sok.EmbeddingVariable("table", dim=2, initializer=1.0)
    dense = tf.compat.v1.get_variable("dense", initializer=[2.0, 3.0], use_resource=True)
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [4, 5]) * dense)
    gradients = tf.gradients(loss, [table, dense])
    return table, dense, optimizer.apply_gradients(zip_equal(gradients, [table, dense]))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_it_initializes_the_optimizers_own_variables_and_no_others(name):
    with harness.graph_and_session() as session:
        optimizer = OPTIMIZERS[name]()
        table, dense, train = model(optimizer)
        session.run([table.initializer, dense.initializer])
        session.run(optimizer.initializer)
        assert session.run(tf.compat.v1.report_uninitialized_variables()).size == 0
        session.run(train)
        trained = session.run([tf.nn.embedding_lookup(table, [4, 5]), dense])
        assert not np.any(trained[0] == 1.0)
        session.run(optimizer.initializer)
        for got, want in zip_equal(session.run([tf.nn.embedding_lookup(table, [4, 5]), dense]), trained):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_without_variables_it_does_nothing(name):
    with harness.graph_and_session() as session:
        optimizer = OPTIMIZERS[name]()
        variables = tf.compat.v1.global_variables()
        session.run(optimizer.initializer)
        assert tf.compat.v1.global_variables() == variables


def test_it_goes_into_one_group_with_the_initializer_of_all_variables():
    with harness.graph_and_session() as session:
        optimizer = LossScaleOptimizer(sok.optimizers.Adam(0.1), 1024)
        table, _, train = model(optimizer)
        session.run(tf.group(tf.compat.v1.global_variables_initializer(), optimizer.initializer))
        session.run(train)
        assert not np.any(session.run(tf.nn.embedding_lookup(table, [4, 5])) == 1.0)


def test_adams_iterations_count_steps_and_are_saved():
    with harness.graph_and_session() as session, tf.name_scope("somewhere"):
        optimizer = sok.optimizers.Adam()
        _, _, train = model(optimizer)
        assert optimizer.iterations is optimizer.iterations
        assert optimizer.iterations.name == "Adam/iterations:0"
        assert any(variable is optimizer.iterations for variable in optimizer.variables())
        assert any(variable is optimizer.iterations for variable in tf.compat.v1.global_variables())
        harness.initialize(session)
        for _ in range(3):
            session.run(train)
        assert session.run(optimizer.iterations) == 3
        session.run(optimizer.initializer)
        assert session.run(optimizer.iterations) == 0


def test_each_graph_has_its_own_counters():
    optimizer = sok.optimizers.Adam(0.1)
    for _ in range(2):
        with harness.graph_and_session() as session:
            table, _, train = model(optimizer)
            rows = tf.nn.embedding_lookup(table, [4])
            harness.initialize(session)
            session.run(train)
            np.testing.assert_allclose(session.run(rows), [[0.9, 0.9]], rtol=1e-5)
            assert session.run(optimizer.iterations) == 1


def test_learning_rate_is_what_was_given():
    assert sok.optimizers.Adam(0.25).learning_rate == 0.25
    assert sok.optimizers.Adam(model).learning_rate is model
