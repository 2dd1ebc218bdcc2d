"""After the first embedding variable is made, TensorFlow's optimizers train them; others train as before."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

_KERAS = compat.legacy_keras_optimizers()


@pytest.fixture(autouse=True)
def _leave_optimizers_as_they_were():
    installed = replacements.is_installed(Part.OPTIMIZERS)
    yield
    replacements.uninstall(Part.OPTIMIZERS)
    if installed:
        replacements.install(Part.OPTIMIZERS)


def _plain_optimizers():
    train = tf.compat.v1.train
    made = {
        "sgd": train.GradientDescentOptimizer(0.1),
        "momentum": train.MomentumOptimizer(0.1, 0.9),
        "adam": train.AdamOptimizer(0.1),
        "adadelta": train.AdadeltaOptimizer(0.1),
    }
    if _KERAS:
        legacy = _KERAS[0][1]
        # 1.15 can only clip each gradient by its own norm.
        clip = "clipnorm" if compat.VERSION < (2, 0) else "global_clipnorm"
        made.update({"keras_sgd": legacy.SGD(0.1), "keras_adam": legacy.Adam(0.1, **{clip: 1.0})})
        made.update({"keras_nadam": legacy.Nadam(0.1)})
    return made


def _train_plain_model(name):
    """Trains without embedding variables; returns (results, names of all ops)."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        optimizer = _plain_optimizers()[name]
        rng = np.random.default_rng(0)
        table = optimizer_parity.resource(rng.standard_normal([8, 3]).astype(np.float32), name="table")
        dense = optimizer_parity.resource(rng.standard_normal([3, 1]).astype(np.float32), name="dense")
        loss = tf.reduce_sum(tf.matmul(tf.nn.embedding_lookup(table, [1, 2, 2, 5]), dense) ** 2)
        step = optimizer_parity.train(optimizer, loss, [table, dense])
        harness.initialize(session)
        for _ in range(5):
            session.run(step)
        return session.run([table, dense]), [operation.name for operation in graph.get_operations()]


@pytest.mark.parametrize("name", _plain_optimizers())
def test_plain_models_are_untouched(name):
    replacements.uninstall(Part.OPTIMIZERS)
    want, want_names = _train_plain_model(name)
    replacements.install(Part.OPTIMIZERS)
    got, got_names = _train_plain_model(name)
    for one, other in zip_equal(got, want):
        np.testing.assert_array_equal(one, other)
    assert got_names == want_names


def test_methods_replaced_for_a_call_are_back_after_it(session):
    # Replacements of an optimizer's methods for a call must be undone after it.
    table = sok.EmbeddingVariable(name="table", dim=2)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    optimizer.minimize(tf.reduce_sum(tf.nn.embedding_lookup(table, [1])), var_list=[table])
    assert [name for name, value in vars(optimizer).items() if callable(value)] == []


def test_train_op_and_global_step_are_tensorflows(session):
    table = sok.EmbeddingVariable(name="table", dim=2)
    dense = tf.Variable([[1.0], [1.0]])
    loss = tf.reduce_sum(tf.matmul(tf.nn.embedding_lookup(table, [1, 2]), dense))
    global_step = tf.compat.v1.train.get_or_create_global_step()
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    step = optimizer.minimize(loss, global_step=global_step, name="train")
    harness.initialize(session)
    session.run([step])
    session.run([step])
    assert session.run(global_step) == 2
    assert step.name == "train"
    assert tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP) == [step]
    names = sorted(variable.name for variable in optimizer.variables())
    assert names == ["Variable/Adam:0", "Variable/Adam_1:0", "beta1_power:0", "beta2_power:0"]
    assert optimizer.get_slot(table, "m") is None


@pytest.mark.parametrize("dense", [True, False])
def test_adam_counts_one_step_per_call(session, dense):
    tables = [sok.EmbeddingVariable(name=name, dim=2) for name in "ab"]
    loss = sum(tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2])) for table in tables)
    variables = list(tables)
    if dense:
        variables.append(tf.Variable(1.0))
        loss *= variables[-1]
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1, beta1=0.5, beta2=0.75)
    step = optimizer.minimize(loss, var_list=variables)
    harness.initialize(session)
    for _ in range(3):
        session.run(step)
    assert session.run(optimizer._get_beta_accumulators()) == (0.5**4, 0.75**4)


@pytest.mark.skipif(not _KERAS, reason="this TensorFlow has no legacy Keras optimizers")
def test_keras_minimize_of_a_function_and_get_slot(session):
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
    optimizer = _KERAS[0][1].SGD(0.25, momentum=0.5)
    step = optimizer.minimize(lambda: tf.reduce_sum(tf.nn.embedding_lookup(table, [7])), [table])
    rows = tf.nn.embedding_lookup(table, [7])
    harness.initialize(session)
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), [[0.75, 0.75]])
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), [[0.375, 0.375]])
    assert session.run(optimizer.iterations) == 2
    assert optimizer.get_slot(table, "momentum") is None
