# Tags: slow
"""Fused updates, in the op that sums gradients: when they are used, and that they give the same bits.

All tests run on one rank, with the ops for one rank and those for several.
"""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit import compat, native
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup import group

pytestmark = pytest.mark.cases_on_gpu(4)
session = harness.session

train = tf.compat.v1.train
DIMS = (4, 16, 3)
IDS = 12


def _keras_optimizers():
    modules = [module for _, module in compat.legacy_keras_optimizers()][:1]
    return [cls for module in modules for cls in (module.Adam, module.Adadelta, module.Adamax, module.Nadam)]


MAKERS = {
    f"{entry.public_name}-{rule}": functools.partial(entry.make, rule)
    for entry, rule in optimizer_parity.entries_and_rules()
}
MAKER_OF_EACH_RULE = list(
    {rule: f"{entry.public_name}-{rule}" for entry, rule in optimizer_parity.entries_and_rules()}.values()
)


# On the GPU, ranks_gpu_test has updates over ranks; here it has bad messages.
@pytest.fixture(params=sized(["one rank", "over ranks"], ["one rank"]), autouse=True)
def is_sharded(request, monkeypatch):
    """Whether lookups are built as for several ranks; they run on one rank."""
    if request.param == "over ranks":
        monkeypatch.setattr(group, "communicator", lambda: types.SimpleNamespace(size=2))
    return request.param == "over ranks"


class Model:
    """Three tables in one group, pooled, with duplicates within and between samples."""

    def __init__(self):
        self.tables = [
            sok.EmbeddingVariable(name=f"table{i}", dim=dim, initializer=tf.ones_initializer())
            for i, dim in enumerate(DIMS)
        ]
        self.ids = [tf.compat.v1.sparse_placeholder(tf.int64, [None, None]) for _ in DIMS]
        self.rows = sok.group_embedding_lookup_sparse(
            self.tables, self.ids, combiners=["sum", "mean", "sqrtn"]
        )
        self.losses = [tf.reduce_sum(tf.square(rows - 0.3)) for rows in self.rows]
        self.loss = tf.add_n(self.losses)

    def feed(self, seed):
        random = np.random.default_rng(seed)
        feeds = {}
        for ids in self.ids:
            counts = random.integers(0, 5, size=7)
            places = [[row, column] for row, count in enumerate(counts) for column in range(count)]
            values = random.integers(0, IDS, size=len(places))
            feeds[ids] = tf.compat.v1.SparseTensorValue(
                np.array(places, np.int64).reshape(-1, 2), values, [len(counts), 5]
            )
        return feeds

    def contents(self, session):
        return harness.contents_of_tables(session, self.tables)


def _update_ops():
    """(number of ops that sum gradients and update, number of ops that only update)."""
    found = [op.type for op in tf.compat.v1.get_default_graph().get_operations()]
    fused = sum(found.count(op) for op in ("SokGroupLookupApplyGradients", "SokGroupSumApplyGradients"))
    return fused, found.count("SokApplyGradients")


def _assert_same_bits(contents, others):
    for one, other in zip_equal(contents, others):
        harness.assert_equal_arrays(one, other)


def _train(make, fused, steps=5):
    with harness.graph_and_session() as session, sok.optimizers.fused_updates(fused):
        model = Model()
        optimizer = make(0.05)
        if isinstance(optimizer, train.Optimizer):
            step = optimizer.minimize(model.loss, var_list=model.tables)
        else:
            gradients = tf.gradients(model.loss, model.tables)
            step = optimizer.apply_gradients(zip_equal(gradients, model.tables))
        ops = _update_ops()
        harness.initialize(session)
        for seed in range(steps):
            session.run(step, model.feed(seed))
        return ops, model.contents(session)


@pytest.mark.parametrize(
    ("is_sharded", "make"),
    [("one rank", make) for make in MAKERS]
    + [("over ranks", make) for make in sized(MAKER_OF_EACH_RULE, [])],
    indirect=["is_sharded"],
)
def test_fused_and_separate_updates_give_the_same_bits(make):
    ops, fused = _train(MAKERS[make], True)
    assert ops == (1, 0)
    ops, separate = _train(MAKERS[make], False)
    assert ops == (0, 3)
    _assert_same_bits(fused, separate)
    assert not np.all(fused[0][1] == 1.0)


def _identity_that_waits(gradients):
    with tf.control_dependencies([tf.print("waiting", output_stream="file:///dev/null")]):
        return [tf.IndexedSlices(tf.identity(g.values), g.indices) for g in gradients]


def _averaged(gradients, ranks):
    """The gradients as collective training averages them over ranks."""
    return [
        tf.IndexedSlices(native.ops.sok_divide_gradients(g.values, divisor=ranks), g.indices)
        for g in gradients
    ]


CHANGES = {
    "clipped by value": lambda gradients: [tf.clip_by_value(g, -0.01, 0.01) for g in gradients],
    "clipped by global norm": lambda gradients: tf.clip_by_global_norm(gradients, 0.05)[0],
    "scaled": lambda gradients: [tf.IndexedSlices(g.values * 2, g.indices) for g in gradients],
    "behind identities that wait for another op": _identity_that_waits,
    "divided as users do": lambda gradients: [tf.IndexedSlices(g.values / 2, g.indices) for g in gradients],
    "averaged twice": lambda gradients: _averaged(_averaged(gradients, 2), 2),
    "averaged and scaled": lambda gradients: [
        tf.IndexedSlices(g.values * 2, g.indices) for g in _averaged(gradients, 2)
    ],
    "averaged, with indices of their own": lambda gradients: [
        tf.IndexedSlices(g.values, g.indices + 0) for g in _averaged(gradients, 2)
    ],
}


@pytest.mark.parametrize("change", CHANGES)
def test_gradients_that_something_is_done_to_get_ops_of_their_own(session, change):
    model = Model()
    gradients = CHANGES[change](tf.gradients(model.loss, model.tables))
    step = train.GradientDescentOptimizer(0.1).apply_gradients(zip_equal(gradients, model.tables))
    assert _update_ops() == (0, 3)
    harness.initialize(session)
    session.run(step, model.feed(1))
    assert not np.all(model.contents(session)[0][1] == 1.0)


@pytest.mark.parametrize(
    "gate", [train.Optimizer.GATE_NONE, train.Optimizer.GATE_OP, train.Optimizer.GATE_GRAPH]
)
def test_gates_for_no_other_gradients_are_no_obstacle(session, gate):
    model = Model()
    train.AdagradOptimizer(0.1).minimize(model.loss, var_list=model.tables, gate_gradients=gate)
    assert _update_ops() == (1, 0)


def test_a_gate_that_waits_for_other_gradients_is_respected(session):
    model = Model()
    dense = tf.compat.v1.get_variable("dense", initializer=1.0)
    train.AdagradOptimizer(0.1).minimize(model.loss * dense, gate_gradients=train.Optimizer.GATE_GRAPH)
    assert _update_ops() == (0, 3)


def test_gradients_of_two_groups_are_added_up_first(session):
    model = Model()
    again = sok.group_embedding_lookup_sparse(model.tables[:1], model.ids[:1], combiners=["sum"])
    loss = model.loss + tf.reduce_sum(again[0])
    step = train.GradientDescentOptimizer(0.1).minimize(loss, var_list=model.tables)
    assert _update_ops() == (1, 1)
    harness.initialize(session)
    session.run(step, model.feed(3))
    assert all(not np.all(contents[1] == 1.0) for contents in model.contents(session))


def test_tables_of_one_group_may_have_optimizers_of_their_own():
    def contents(fused):
        with harness.graph_and_session() as session, sok.optimizers.fused_updates(fused):
            model = Model()
            gradients = tf.gradients(model.loss, model.tables)
            pairs = list(zip_equal(gradients, model.tables))
            steps = [
                train.GradientDescentOptimizer(0.1).apply_gradients([pairs[2], pairs[0]]),
                train.AdagradOptimizer(0.1).apply_gradients(pairs[1:2]),
            ]
            assert _update_ops() == ((2, 0) if fused else (0, 3))
            harness.initialize(session)
            for seed in range(3):
                session.run(steps, model.feed(seed))
            return model.contents(session)

    _assert_same_bits(contents(True), contents(False))


@pytest.mark.parametrize(
    ("make", "ranks"),
    [(train.AdagradOptimizer, 2), (train.AdagradOptimizer, 7), (train.AdamOptimizer, 3)],
)
def test_the_average_over_ranks_is_taken_in(make, ranks, is_sharded):
    def contents(fused):
        with harness.graph_and_session() as session, sok.optimizers.fused_updates(fused):
            model = Model()
            gradients = _averaged(tf.gradients(model.loss, model.tables), ranks)
            step = make(0.1).apply_gradients(zip_equal(gradients, model.tables))
            # The ops for one rank have no average.
            assert _update_ops() == ((1, 0) if fused and is_sharded else (0, 3))
            harness.initialize(session)
            for seed in range(4):
                session.run(step, model.feed(seed))
            return model.contents(session)

    _assert_same_bits(contents(True), contents(False))


@pytest.mark.parametrize("is_sharded", ["one rank"], indirect=True)
def test_gradients_are_divided_with_one_rounding():
    divisors = (1, 3, 7)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.float32, [None, 5])
        # Once with a buffer that is reused, once with one that is not.
        quotients = [
            [native.ops.sok_divide_gradients(x, divisor=divisor) for x in (fed, tf.identity(fed) + 0.0)]
            for divisor in divisors
        ]
        assert quotients[0][0].shape.as_list() == [None, 5]
        for rows in (0, 1, 1000):
            values = np.random.default_rng(rows).normal(size=[rows, 5]).astype(np.float32)
            for divisor, both in zip_equal(divisors, session.run(quotients, {fed: values})):
                np.testing.assert_array_equal(both, [values / np.float32(divisor)] * 2)


def test_gradients_can_be_read_beside_the_update(session):
    model = Model()
    gradients = tf.gradients(model.loss, model.tables)
    step = train.GradientDescentOptimizer(0.1).apply_gradients(zip_equal(gradients, model.tables))
    assert _update_ops() == (1, 0)
    # The gradient of one table, read by an op that is built after the update.
    seen = tf.reduce_sum(gradients[1].values)
    harness.initialize(session)
    feed = model.feed(1)
    session.run(model.rows, feed)
    alone = session.run(seen, feed)
    ((_, before), *_) = contents = model.contents(session)
    together, _ = session.run([seen, step], feed)
    assert together == alone != 0
    moved = np.sum(contents[1][1] - model.contents(session)[1][1])
    np.testing.assert_allclose(moved, 0.1 * alone, rtol=1e-4)
    assert not np.array_equal(before, model.contents(session)[0][1])


class WeightedModel:
    """A table with a weighted lookup of two ids, and one without weights in the same group."""

    def __init__(self, weights):
        self.table = sok.EmbeddingVariable(name="table", dim=2, initializer=tf.ones_initializer())
        self.other = sok.EmbeddingVariable(name="other", dim=3, initializer=tf.ones_initializer())
        places = [[0, 0], [0, 1]]
        ids = tf.SparseTensor(places, tf.constant([5, 6], tf.int64), [1, 2])
        self.rows = sok.group_embedding_lookup_sparse(
            [self.table, self.other],
            [ids, ids],
            combiners=["sum", "mean"],
            sp_weights=[tf.SparseTensor(places, weights, [1, 2]), None],
        )
        self.tables = [self.table, self.other]
        self.loss = tf.add_n([tf.reduce_sum(rows) for rows in self.rows])


def test_gradients_of_weights_are_taken_before_rows_change(session):
    weights = tf.compat.v1.get_variable("weights", initializer=[1.0, 2.0], use_resource=True)
    model = WeightedModel(weights)
    step = train.GradientDescentOptimizer(10.0).minimize(model.loss)
    assert _update_ops() == (1, 0)
    harness.initialize(session)
    session.run(step)
    np.testing.assert_array_equal(session.run(weights), [1.0 - 20.0, 2.0 - 20.0])


def test_gradients_of_weights_that_are_asked_for_later_are_those_before_the_step(session):
    weights = tf.compat.v1.placeholder(tf.float32, [2])
    model = WeightedModel(weights)
    *gradients, of_weights = tf.gradients(model.loss, [*model.tables, weights])
    step = train.GradientDescentOptimizer(10.0).apply_gradients(zip_equal(gradients, model.tables))
    assert _update_ops() == (1, 0)
    later = of_weights * 3.0
    harness.initialize(session)
    feed = {weights: [1.0, 2.0]}
    # Rows of ones, then rows that have moved by the weights times 10.
    for _ in range(10):
        session.run(tf.compat.v1.variables_initializer(model.tables))
        fetched, derived, _ = session.run([of_weights, later, step], feed)
        np.testing.assert_array_equal(fetched, [2.0, 2.0])
        np.testing.assert_array_equal(derived, [6.0, 6.0])
        np.testing.assert_array_equal(session.run(of_weights, feed), [2 * (1 - 10.0), 2 * (1 - 20.0)])


def test_rows_that_went_matter_to_gradients_of_weights_alone(session, is_sharded):
    weights = tf.compat.v1.placeholder(tf.float32, [2])
    model = WeightedModel(weights)
    with tf.control_dependencies(model.rows):
        evicted = model.table.evict(tf.constant([5], tf.int64))
    with tf.control_dependencies([evicted]):
        loss = tf.add_n([tf.reduce_sum(tf.identity(rows) * tf.ones([])) for rows in model.rows])
    *gradients, of_weights = tf.gradients(loss, [*model.tables, weights], [tf.identity(loss)])
    step = train.GradientDescentOptimizer(1.0).apply_gradients(zip_equal(gradients, model.tables))
    assert _update_ops() == (1, 0)
    harness.initialize(session)
    feed = {weights: [1.0, 2.0]}
    if compat.VERSION < (2, 0) and not is_sharded:
        # 1.15 does not tell an op which outputs are used: gradients of weights are always computed.
        with pytest.raises(tf.errors.FailedPreconditionError, match="row of key 5 was evicted"):
            session.run(step, feed)
        return
    session.run(step, feed)
    keys, rows = harness.table_contents(session, model.table)
    assert keys.tolist() == [6] and not np.any(rows == 1.0)
    if is_sharded:
        return  # gradients of weights are computed from the rows that were sent
    with pytest.raises(tf.errors.FailedPreconditionError, match="'table': the row of key 5 was evicted"):
        session.run([step, of_weights], feed)
    np.testing.assert_array_equal(harness.table_contents(session, model.table)[1], rows)


@pytest.mark.parametrize("make", [train.AdamOptimizer, *_keras_optimizers()])
def test_a_step_is_over_when_the_train_op_is(make):
    def rows_after_step(fused):
        with harness.graph_and_session() as session, sok.optimizers.fused_updates(fused):
            model = Model()
            gradients = tf.gradients(model.loss, model.tables)
            step = make(0.1).apply_gradients(zip_equal(gradients, model.tables))
            with tf.control_dependencies([step]):
                after = sok.group_embedding_lookup_sparse(model.tables, model.ids, combiners=["sum"] * 3)
            harness.initialize(session)
            return session.run(after, model.feed(2))

    harness.assert_equal_arrays(rows_after_step(True), rows_after_step(False))


def _raw_update(**changed):
    operations = tf.compat.v1.get_default_graph().get_operations()
    by_type = {op.type: op for op in operations}
    arguments = {
        "hyper": [tf.constant([0.1])] * 3,
        "trained": [0, 1, 2],
        "optimizer": "sgd",
    }
    if "SokGroupSum" in by_type:
        gradient = by_type["SokGroupSum"]
        arguments.update(graph_ops.inputs_of(gradient), divisor=2)
        make = native.ops.sok_group_sum_apply_gradients
    else:
        gradient = by_type["SokGroupLookupGrad"]
        arguments["handles"] = list(gradient.inputs[:3])
        arguments["plan"] = gradient.inputs[3]
        arguments["gradients"] = list(gradient.inputs[4:])
        make = native.ops.sok_group_lookup_apply_gradients
    arguments["dims"] = gradient.get_attr("dims")
    return make(**{**arguments, **changed})


def _no_plan():
    return tf.raw_ops.EmptyTensorList(
        element_shape=tf.constant([], tf.int32), max_num_elements=1, element_dtype=tf.int32
    )


def _zeros(*widths):
    return [tf.zeros([7, width]) for width in widths]


BAD_INPUTS = {
    "a rate that is not finite": (lambda: {"hyper": [tf.constant([np.nan])] * 3}, "table0.*nan"),
    "too many hyper-parameters": (lambda: {"hyper": [tf.constant([0.1, 0.2])] * 3}, "table0"),
    "too few of one table": (
        lambda: {"hyper": [tf.constant([0.1]), tf.constant([0.1]), harness.empty_tensor(tf.float32)]},
        "table2",
    ),
    "hyper-parameters of another rank": (
        lambda: {"hyper": [tf.compat.v1.placeholder_with_default([[0.1]], None)] * 3},
        r"table0.*\[1,1\]",
    ),
    "an unknown optimizer": (lambda: {"optimizer": "none"}, "none"),
    "a table twice": (lambda: {"trained": [0, 1, 1]}, "trained"),
    "a table that is not there": (lambda: {"trained": [0, 1, 3]}, "trained"),
    "another dim": (lambda: {"dims": [4, 16, 4]}, "table2.*dim"),
}
BAD_GRADIENTS = {
    "no plan": (lambda: {"plan": _no_plan()}, "plan"),
    "gradients of one output too few": (lambda: {"gradients": _zeros(4, 16)}, "gradients"),
    "a gradient of another shape": (lambda: {"gradients": _zeros(4, 16, 5)}, "gradients"),
}
BAD_MESSAGES = {
    "no plan": (lambda: {"served": _no_plan()}, "served"),
    "words that are no message": (lambda: {"sent": tf.zeros([9], tf.int64)}, "rank 0|message"),
    "no words": (lambda: {"sent": tf.zeros([0], tf.int64)}, "rank 0|message"),
}


def _assert_refused(cases):
    with harness.graph_and_session() as session:
        model = Model()
        tf.gradients(model.loss, model.tables)
        steps = [(_raw_update(**change()), message) for change, message in cases.values()]
        reader = harness.TableReader(*model.tables)
        harness.initialize(session)
        feed = model.feed(1)
        session.run(model.rows, feed)
        before = reader.read(session)
        for step, message in steps:
            with pytest.raises(tf.errors.OpError, match=message):
                session.run(step, feed)
            _assert_same_bits(before, reader.read(session))


def test_bad_inputs_are_errors_that_change_nothing():
    _assert_refused(BAD_INPUTS)


@pytest.mark.parametrize("is_sharded", ["one rank"], indirect=True)
def test_bad_gradients_are_errors_that_change_nothing():
    _assert_refused(BAD_GRADIENTS)


@pytest.mark.parametrize("is_sharded", ["over ranks"], indirect=True)
def test_bad_messages_are_errors_that_change_nothing():
    _assert_refused(BAD_MESSAGES)
