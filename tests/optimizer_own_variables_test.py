"""An optimizer's own variables: their `initializer`, Adam's count of steps, Nadam's momentum and slots."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

legacy = compat.legacy_keras_optimizers()[0][1]
LossScaleOptimizer = sok.tf.keras.mixed_precision.LossScaleOptimizer

OPTIMIZERS = {
    "adam": lambda: sok.optimizers.Adam(0.1),
    "loss scale over adam": lambda: LossScaleOptimizer(sok.optimizers.Adam(0.1), "dynamic"),
    "loss scale over Keras": lambda: LossScaleOptimizer(legacy.Adam(0.1), 1024),
    "loss scale over sgd": lambda: LossScaleOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1), 1024),
}


def model(optimizer):
    """(table, dense variable, training op) of a small model."""
    table = sok.EmbeddingVariable("table", dim=2, initializer=1.0)
    dense = tf.compat.v1.get_variable("dense", initializer=[2.0, 3.0], use_resource=True)
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [4, 5]) * dense)
    gradients = tf.gradients(loss, [table, dense])
    return table, dense, optimizer.apply_gradients(zip_equal(gradients, [table, dense]))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_it_initializes_the_optimizers_own_variables_and_no_others(session, name):
    optimizer = OPTIMIZERS[name]()
    table, dense, train = model(optimizer)
    session.run([table.initializer, dense.initializer])
    session.run(optimizer.initializer)
    assert session.run(tf.compat.v1.report_uninitialized_variables()).size == 0
    session.run(train)
    trained = session.run([tf.nn.embedding_lookup(table, [4, 5]), dense])
    assert not np.any(trained[0] == 1.0)
    session.run(optimizer.initializer)
    harness.assert_equal_arrays(session.run([tf.nn.embedding_lookup(table, [4, 5]), dense]), trained)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_without_variables_it_does_nothing(session, name):
    optimizer = OPTIMIZERS[name]()
    variables = tf.compat.v1.global_variables()
    session.run(optimizer.initializer)
    assert tf.compat.v1.global_variables() == variables


def test_it_goes_into_one_group_with_the_initializer_of_all_variables(session):
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
def test_the_momentum_schedule_advances_once_per_step(session, tables, others):
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


def test_slots_are_made_for_ordinary_variables_only(session):
    table = sok.EmbeddingVariable(name="table", dim=2)
    dense = tf.Variable([1.0, 2.0], **compat.AS_RESOURCE)
    optimizer = legacy.Nadam(0.1)
    _minimized(optimizer, [table], [dense])
    assert optimizer.get_slot(table, "m") is None
    assert optimizer.get_slot(dense, "m").shape == [2]
    shapes = sorted(tuple(variable.shape) for variable in optimizer.variables())
    assert shapes == [(), (), (2,), (2,)]  # iterations and momentum, m and v
