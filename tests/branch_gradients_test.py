# Tags: versions, old_version
"""Lookups in branches train: like those in a tf.Variable, and like lookups of no ids if not taken."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

import harness
import saved_files
import sparse_operation_kit as sok
from device_of_tests import cpu_only
from same_length import zip_equal
from sparse_operation_kit import compat, feature_columns

pytestmark = pytest.mark.cases_on_gpu(3)
v1 = tf.compat.v1
session = harness.session
DIM, KEYS = 2, 8
ONE_DEVICE = "TensorFlow keeps on one device what a branch in a function takes"
NOT_IN_1 = "TensorFlow 1.15 refuses this gradient itself, or has none"
START = np.linspace(0.5, 2.0, KEYS * DIM, dtype=np.float32).reshape(KEYS, DIM)


@pytest.fixture(params=["v1", "v2"])
def control_flow(request):
    """Runs a test with tf.cond of Switch and Merge, and with tf.cond of functions."""
    if request.param == "v2" and compat.VERSION < (2, 0):
        pytest.skip(NOT_IN_1)
    before = control_flow_util.ENABLE_CONTROL_FLOW_V2
    control_flow_util.ENABLE_CONTROL_FLOW_V2 = request.param == "v2"
    yield request.param
    control_flow_util.ENABLE_CONTROL_FLOW_V2 = before


class Model:
    """The inputs of a model: two conditions, and variables `a` and `b` of equal rows, tables or not."""

    def __init__(self, of_tables):
        self.first = v1.placeholder_with_default(False, [])
        self.second = v1.placeholder_with_default(False, [])
        self.dense = v1.get_variable("dense", initializer=np.float32([1.5, 0.5]), use_resource=True)
        make = self._table if of_tables else self._variable
        self.a, self.b = make("a"), make("b")

    @staticmethod
    def _table(name):
        return sok.EmbeddingVariable(name=name, dim=DIM, initializer=START)

    @staticmethod
    def _variable(name):
        return v1.get_variable(name, initializer=START, use_resource=True)

    def rows(self, variable, *ids):
        return self.dense * tf.nn.embedding_lookup(variable, tf.constant(ids, tf.int64))

    @staticmethod
    def nothing():
        return tf.zeros([3, DIM])


def bags(*ids):
    return tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant(ids, tf.int64), [3, 2])


def weights_of_bags(model):
    return tf.SparseTensor(bags(0, 0, 0).indices, tf.concat([tf.square(model.dense), [0.5]], 0), [3, 2])


def one_branch(model):
    return tf.cond(model.first, lambda: model.rows(model.a, 1, 2, 1), model.nothing)


def both_branches(model):
    return tf.cond(
        model.first, lambda: model.rows(model.a, 1, 2, 1), lambda: 2.0 * model.rows(model.a, 2, 3, 4)
    )


def in_a_branch_and_outside(model):
    return model.rows(model.a, 2, 5, 5) + one_branch(model)


def two_lookups_in_a_branch(model):
    def twice():
        return tf.square(model.rows(model.a, 1, 2, 1)) + model.rows(model.a, 2, 3, 0)

    return tf.cond(model.first, twice, model.nothing)


def nested(model):
    def inner():
        return tf.cond(
            model.second, lambda: model.rows(model.a, 1, 2, 1), lambda: model.rows(model.b, 3, 3, 4)
        )

    return tf.cond(model.first, inner, lambda: model.rows(model.a, 0, 1, 6))


def of_a_case(model):
    return tf.case(
        [
            (model.first, lambda: model.rows(model.a, 1, 2, 1)),
            (model.second, lambda: model.rows(model.b, 1, 2, 1) * model.rows(model.a, 5, 5, 7)),
        ],
        default=model.nothing,
    )


def of_a_switch(model):
    branches = [
        model.nothing,
        lambda: model.rows(model.a, 1, 2, 1),
        lambda: model.rows(model.b, 1, 2, 1) * model.rows(model.a, 5, 5, 7),
    ]
    return tf.switch_case(tf.cast(model.first, tf.int32) + tf.cast(model.second, tf.int32), branches)


def weighted(model):
    def look_up():
        return tf.nn.safe_embedding_lookup_sparse(
            model.a, bags(1, 2, 1), weights_of_bags(model), combiner="mean"
        )

    return tf.cond(model.first, look_up, model.nothing)


def of_a_group(model):
    def look_up():
        outputs = sok.group_embedding_lookup_sparse(
            [model.a, model.b, model.a],
            [bags(1, 2, 1), bags(3, 4, 4), bags(2, 2, 6)],
            ["sum", "mean", "sqrtn"],
            sp_weights=[weights_of_bags(model), None, None],
        )
        return model.dense * outputs[0] * outputs[1] + outputs[2]

    return tf.cond(model.first, look_up, model.nothing)


def function_in_a_branch(model):
    look_up = tf.function(lambda: model.rows(model.a, 1, 2, 1))
    return tf.cond(model.first, look_up, model.nothing)


def function_in_a_branch_and_outside(model):
    look_up = tf.function(lambda: model.rows(model.a, 1, 2, 1))
    return look_up() + tf.cond(model.first, lambda: look_up(), model.nothing)


def branch_in_a_function(model):
    def chosen(first):
        return tf.cond(first, lambda: model.rows(model.a, 1, 2, 1), model.nothing)

    return tf.function(chosen)(model.first)


MODELS = [
    one_branch,
    both_branches,
    in_a_branch_and_outside,
    two_lookups_in_a_branch,
    nested,
    of_a_case,
    of_a_switch,
    weighted,
    of_a_group,
    function_in_a_branch,
    function_in_a_branch_and_outside,
]
STEPS = [(False, False), (True, False), (False, True), (True, True), (False, False), (True, True)]


def contents(session, variable):
    """The rows of all keys."""
    if not isinstance(variable, sok.EmbeddingVariable):
        return session.run(variable)
    rows = START.copy()
    keys, of_keys = harness.table_contents(session, variable)
    rows[keys] = of_keys
    return rows


def train(make_output, optimizer, of_tables):
    """The variables after each step."""
    with harness.graph_and_session() as session:
        model = Model(of_tables)
        output = make_output(model)
        loss = tf.reduce_sum(tf.square(output)) + tf.reduce_sum(model.dense)
        variables = [model.dense, model.a, model.b]
        step = optimizer().minimize(loss)
        harness.initialize(session)
        after = []
        for first, second in STEPS:
            session.run(step, {model.first: first, model.second: second})
            after.append([contents(session, variable) for variable in variables])
        return after


def adam():
    return v1.train.AdamOptimizer(0.01)


CASES = [
    *((make, adam) for make in MODELS),
    pytest.param(branch_in_a_function, adam, marks=cpu_only(ONE_DEVICE)),
    (nested, lambda: v1.train.GradientDescentOptimizer(0.01)),
    (nested, lambda: v1.train.AdagradOptimizer(0.01)),
]


@pytest.mark.parametrize(("make_output", "optimizer"), CASES)
def test_as_with_tensorflows_variables(control_flow, make_output, optimizer):
    if compat.VERSION < (2, 0) and make_output in (of_a_switch, branch_in_a_function):
        pytest.skip(NOT_IN_1)
    for got, expected in zip_equal(*(train(make_output, optimizer, tables) for tables in (True, False))):
        harness.assert_close_arrays(got, expected, rtol=1e-5, atol=1e-6)


RULES = {
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.1, momentum=0.5),
    "adam": lambda: sok.optimizers.Adam(0.1),
    "lazy_adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.1),
    "adam_async": lambda: sok.optimizers.AdamAsyncOptimizer(0.1),
}


def saved_after(steps, look_up, optimizer, folder):
    """What a checkpoint has of a table after steps. Each looks up keys by `look_up`, or none: None."""
    with harness.graph_and_session() as session:
        policies = {"admission": sok.CounterFilter(2), "eviction": sok.GlobalStepEvict(100)}
        table = sok.EmbeddingVariable(name="table", dim=DIM, initializer=START, **policies)
        keys = v1.placeholder(tf.int64, [None])
        taken = v1.placeholder(tf.bool, [])
        global_step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum(tf.square(look_up(table, keys, taken)))
        with sok.OptimizerScope([table]):
            step = optimizer().minimize(loss, global_step)
        saver = v1.train.Saver()
        harness.initialize(session)
        for of_step in steps:
            session.run(step, {keys: of_step or [], taken: of_step is not None})
        path = saver.save(session, str(folder / "model"))
    scalars = {
        name: value
        for name, value in saved_files.tensors_of(path).items()
        if name == "global_step" or "power" in name or "iterations" in name
    }
    return {**scalars, **harness.saved_tables(path)["table"]}


@pytest.mark.parametrize("optimizer", RULES.values(), ids=RULES.keys())
def test_a_branch_that_is_not_taken_is_a_lookup_of_no_ids(control_flow, optimizer, tmp_path):
    def in_branch(table, keys, taken):
        return tf.cond(
            taken, lambda: tf.nn.embedding_lookup(table, keys), lambda: tf.ones([tf.size(keys), DIM])
        )

    steps = [None, [1, 2, 1], None, None, [2, 3, 3], [1], None]
    got = saved_after(steps, in_branch, optimizer, tmp_path)
    expected = saved_after(
        steps, lambda table, keys, taken: tf.nn.embedding_lookup(table, keys), optimizer, tmp_path
    )
    assert {"global_step", "last_step", "frequency"} <= got.keys()
    harness.assert_equal_dicts(got, expected)


def test_input_layer_in_a_branch(control_flow, session):
    taken = v1.placeholder(tf.bool, [])
    features = {"ids": tf.constant([[1, 2], [2, -1]], tf.int64)}
    column = v1.feature_column.embedding_column(
        feature_columns.categorical_column_with_embedding("ids", tf.int64),
        DIM,
        initializer=v1.constant_initializer(0.5),
    )
    rows = tf.cond(
        taken, lambda: v1.feature_column.input_layer(features, [column]), lambda: tf.zeros([2, DIM])
    )
    step = v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(rows))
    (table,) = v1.trainable_variables()
    harness.initialize(session)
    session.run(step, {taken: False})
    assert session.run(table.size()) == 0
    session.run(step, {taken: True})
    session.run(step, {taken: False})
    keys, rows = harness.table_contents(session, table)
    assert dict(zip_equal(keys, rows[:, 0])) == {1: 0.25, 2: -0.25}


def products(table, taken):
    """Products of rows of two lookups in a branch."""

    def look_up():
        return tf.nn.embedding_lookup(table, [1, 2]) * tf.nn.embedding_lookup(table, [2, 3])

    return tf.cond(taken, look_up, lambda: tf.zeros([2, DIM]))


@cpu_only("TensorFlow clears the memory of a plugin's device from the host")
def test_several_gradients_of_a_branch(control_flow, session):
    table = sok.EmbeddingVariable(name="table", dim=DIM, initializer=START)
    taken = v1.placeholder_with_default(True, [])
    rows = products(table, taken)
    # The second gradient finds in the branch what the first one has left there.
    gradients = [tf.gradients(factor * tf.reduce_sum(rows), table)[0] for factor in (1.0, 3.0)]
    harness.initialize(session)
    one, other = (
        harness.gradient_by_key(session, table, gradient, np.arange(1, 4)) for gradient in gradients
    )
    np.testing.assert_allclose(one, [START[2], START[1] + START[3], START[2]])
    np.testing.assert_allclose(other, 3 * one)
    assert [len(session.run(gradient.values, {taken: False})) for gradient in gradients] == [0, 0]


def test_a_tape(control_flow, session):
    table = sok.EmbeddingVariable(name="table", dim=DIM, initializer=START)
    taken = v1.placeholder_with_default(True, [])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(products(table, taken))
        if control_flow == "v2":
            loss += tf.reduce_sum(tf.function(lambda: products(table, taken))())
    if control_flow == "v1":
        with pytest.raises(NotImplementedError, match="tf.cond"):  # TensorFlow's
            tape.gradient(loss, table)
        return
    gradient = tape.gradient(loss, table)
    harness.initialize(session)
    got = harness.gradient_by_key(session, table, gradient, np.arange(1, 4))
    np.testing.assert_allclose(got, [2 * START[2], 2 * (START[1] + START[3]), 2 * START[2]])
    assert len(session.run(gradient.values, {taken: False})) == 0


def test_norms_add_up_the_lookups_of_a_branch(control_flow, session):
    table = sok.EmbeddingVariable(name="table", dim=DIM, initializer=START)
    taken = v1.placeholder_with_default(True, [])
    gradient = tf.gradients(tf.reduce_sum(products(table, taken)), table)
    (clipped,), norm = tf.clip_by_global_norm(gradient, 0.5)
    of_zeros = tf.linalg.global_norm([clipped])
    harness.initialize(session)
    wanted = np.sqrt(np.square([START[2], START[1] + START[3], START[2]]).sum())
    np.testing.assert_allclose(session.run([norm, of_zeros]), [wanted, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(session.run([norm, of_zeros], {taken: False}), 0)


def test_a_step_in_a_branch(control_flow, session):
    table = sok.EmbeddingVariable(name="table", dim=DIM, initializer=START)
    taken = v1.placeholder(tf.bool, [])
    optimizer = v1.train.GradientDescentOptimizer(0.5)

    def step():
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2, 1]))
        with tf.control_dependencies([optimizer.minimize(loss, var_list=[table])]):
            return tf.constant(1)

    chosen = tf.cond(taken, step, lambda: tf.constant(0))
    harness.initialize(session)
    session.run(chosen, {taken: False})
    assert session.run(table.size()) == 0
    session.run(chosen, {taken: True})
    np.testing.assert_allclose(contents(session, table)[:4], START[:4] - [[0], [1], [0.5], [0]])


def test_a_dense_form_needs_a_capacity(control_flow):
    with harness.graph_and_session():
        table = sok.EmbeddingVariable(name="the_table", dim=DIM)
        (gradient,) = tf.gradients(products(table, v1.placeholder(tf.bool, [])), table)
        with pytest.raises(NotImplementedError, match="'the_table' has no dense form"):
            tf.convert_to_tensor(gradient)
