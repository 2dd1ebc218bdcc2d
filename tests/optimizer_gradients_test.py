"""Gradients of several lookups, given to optimizers in any form, train tables like variables."""

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

train = tf.compat.v1.train


def _clip_by_value(gradients):
    return [tf.clip_by_value(gradient, -0.01, 0.01) for gradient in gradients]


def _clip_by_norm(gradients):
    return [tf.clip_by_norm(gradient, 0.02) for gradient in gradients]


def _clip_by_global_norm(gradients):
    return tf.clip_by_global_norm(gradients, 0.05)[0]


def _twice(gradients):
    return [
        tf.IndexedSlices(g.values * 2, g.indices) if isinstance(g, tf.IndexedSlices) else g * 2
        for g in gradients
    ]


@pytest.mark.parametrize("change", [_clip_by_value, _clip_by_norm, _clip_by_global_norm, _twice])
@pytest.mark.parametrize(
    "make", [train.GradientDescentOptimizer, train.AdagradOptimizer, train.AdamOptimizer]
)
def test_changed_gradients_are_what_is_applied(session, make, change):
    # Ids are distinct in a batch, because TensorFlow's norm of a tf.Variable's gradient counts an id twice.
    twins = optimizer_parity.make_twins()
    steps = []
    for loss, variables in (
        (twins.table_loss, [twins.table, twins.table_dense]),
        (twins.rows_loss, [twins.rows, twins.rows_dense]),
    ):
        optimizer = make(twins.learning_rate)
        gradients, variables = zip_equal(*optimizer.compute_gradients(loss, var_list=variables))
        steps.append(optimizer.apply_gradients(zip_equal(change(list(gradients)), variables)))
    twins.start(session)
    for positions, labels in optimizer_parity.batches(30, distinct=True):
        session.run(steps, twins.feed(positions, labels, 0.3))
    assert optimizer_parity.deviation(*twins.read(session)) < 5e-6


@pytest.mark.parametrize(
    "make", [train.GradientDescentOptimizer, train.AdagradOptimizer, train.AdamOptimizer]
)
@pytest.mark.parametrize(
    "gate", [train.Optimizer.GATE_NONE, train.Optimizer.GATE_OP, train.Optimizer.GATE_GRAPH]
)
def test_several_lookups_of_one_table_add_up(session, make, gate):
    twins = optimizer_parity.make_twins()
    other = tf.compat.v1.placeholder(tf.int64, [None])
    steps = []
    for variable, positions in (
        (twins.table, [tf.gather(twins.keys, p) for p in (twins.positions, other)]),
        (twins.rows, [twins.positions, other]),
    ):
        first, second = (tf.nn.embedding_lookup(variable, p) for p in positions)
        loss = tf.reduce_mean(tf.reduce_sum(first**2, axis=1) * twins.labels) + tf.reduce_sum(tf.sin(second))
        optimizer = make(twins.learning_rate)
        pairs = optimizer.compute_gradients(loss, var_list=[variable], gate_gradients=gate)
        steps.append(optimizer.apply_gradients(pairs))
    twins.start(session)
    rng = np.random.default_rng(0)
    for positions, labels in optimizer_parity.batches(30):
        feed = twins.feed(positions, labels, 0.02)
        session.run(steps, {**feed, other: rng.choice(positions, 5)})
    assert optimizer_parity.deviation(*twins.read(session)) < 5e-6


def test_several_tables_and_dense_variables_in_one_optimizer(session):
    rng = np.random.default_rng(0)
    dims = (1, 3, 16)
    keys = np.arange(-10, 10)
    tables = [sok.EmbeddingVariable(name=f"table{dim}", dim=dim) for dim in dims]
    plains = [tf.Variable(np.zeros([keys.size, dim], np.float32)) for dim in dims]
    start = rng.standard_normal([sum(dims), 1]).astype(np.float32)
    dense = [tf.Variable(start) for _ in range(2)]
    positions = [tf.compat.v1.placeholder(tf.int64, [None]) for _ in dims]
    rows = [tf.nn.embedding_lookup(table, keys) for table in tables]
    steps = []
    for which, variables in enumerate((tables, plains)):
        ids = [tf.gather(keys, p) if which == 0 else p for p in positions]
        features = [tf.nn.embedding_lookup(v, i) for v, i in zip_equal(variables, ids)]
        loss = tf.reduce_mean(tf.sin(3 * tf.matmul(tf.concat(features, axis=1), dense[which])))
        optimizer = train.AdamOptimizer(0.05)
        steps.append(optimizer.minimize(loss, var_list=[dense[which], *variables]))
    harness.initialize(session)
    for plain, row in zip_equal(plains, rows):
        plain.load(session.run(row), session)
    for _ in range(50):
        session.run(steps, {p: rng.integers(0, keys.size, 8) for p in positions})
    for got, want in session.run(list(zip_equal([*rows, dense[0]], [*plains, dense[1]]))):
        assert optimizer_parity.deviation(got, want) < 5e-5


def test_missing_gradient_leaves_a_table_alone(session):
    used, unused = (sok.EmbeddingVariable(name=name, dim=2, initializer=1.0) for name in ("used", "unused"))
    rows = [tf.nn.embedding_lookup(table, [4]) for table in (used, unused)]
    optimizer = train.AdamOptimizer(0.1)
    pairs = optimizer.compute_gradients(tf.reduce_sum(rows[0]), var_list=[used, unused])
    assert pairs[1][0] is None
    step = optimizer.apply_gradients(pairs)
    harness.initialize(session)
    session.run(step)
    moved, stayed = session.run(rows)
    np.testing.assert_allclose(moved, [[0.9, 0.9]], rtol=1e-5)
    np.testing.assert_array_equal(stayed, [[1.0, 1.0]])


def test_rows_named_twice_in_a_gradient_get_the_sum(session):
    table = sok.EmbeddingVariable(name="table", dim=1, initializer=0.0)
    rows = tf.nn.embedding_lookup(table, [10, 11])
    gradient = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([1, 0, 1], tf.int32))
    step = train.AdagradOptimizer(1.0, initial_accumulator_value=11.0).apply_gradients([(gradient, table)])
    harness.initialize(session)
    session.run(rows)
    session.run(step)
    np.testing.assert_allclose(session.run(rows), [[-2 / np.sqrt(15)], [-5 / np.sqrt(36)]], rtol=1e-6)


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
    harness.assert_equal_arrays(got, want)
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
