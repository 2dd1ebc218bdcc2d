"""Updates of tables in the op that sums their gradients: where they happen, and that they change no bit."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat, native

train = tf.compat.v1.train
DIMS = (4, 16, 3)
IDS = 12


def _keras_optimizers():
    return [module.Adam for _, module in compat.legacy_keras_optimizers()][:1]


MAKERS = [
    train.GradientDescentOptimizer,
    train.AdagradOptimizer,
    train.AdamOptimizer,
    sok.tf.keras.optimizers.LazyAdamOptimizer,
    sok.optimizers.AdamAsyncOptimizer,
    *_keras_optimizers(),
]


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
        return [harness.table_contents(session, table) for table in self.tables]


def _update_ops():
    types = [op.type for op in tf.compat.v1.get_default_graph().get_operations()]
    return types.count("SokGroupLookupApplyGradients"), types.count("SokApplyGradients")


def _train(make, fused, steps=5):
    with harness.graph_and_session() as session, sok.optimizers.fused_updates(fused):
        model = Model()
        optimizer = make(0.05)
        if isinstance(optimizer, train.Optimizer):
            step = optimizer.minimize(model.loss, var_list=model.tables)
        else:
            gradients = tf.gradients(model.loss, model.tables)
            step = optimizer.apply_gradients(zip(gradients, model.tables, strict=True))
        ops = _update_ops()
        harness.initialize(session)
        for seed in range(steps):
            session.run(step, model.feed(seed))
        return ops, model.contents(session)


@pytest.mark.parametrize("make", MAKERS)
def test_fused_and_separate_updates_give_the_same_bits(make):
    ops, fused = _train(make, True)
    assert ops == (1, 0)
    ops, separate = _train(make, False)
    assert ops == (0, 3)
    for one, other in zip(fused, separate, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert not np.all(fused[0][1] == 1.0)


def _identity_that_waits(gradients):
    with tf.control_dependencies([tf.print("waiting", output_stream="file:///dev/null")]):
        return [tf.IndexedSlices(tf.identity(g.values), g.indices) for g in gradients]


CHANGES = {
    "clipped by value": lambda gradients: [tf.clip_by_value(g, -0.01, 0.01) for g in gradients],
    "clipped by global norm": lambda gradients: tf.clip_by_global_norm(gradients, 0.05)[0],
    "scaled": lambda gradients: [tf.IndexedSlices(g.values * 2, g.indices) for g in gradients],
    "behind identities that wait for another op": _identity_that_waits,
}


@pytest.mark.parametrize("change", CHANGES)
def test_gradients_that_something_is_done_to_get_ops_of_their_own(change):
    with harness.graph_and_session() as session:
        model = Model()
        gradients = CHANGES[change](tf.gradients(model.loss, model.tables))
        step = train.GradientDescentOptimizer(0.1).apply_gradients(zip(gradients, model.tables, strict=True))
        assert _update_ops() == (0, 3)
        harness.initialize(session)
        session.run(step, model.feed(1))
        assert not np.all(model.contents(session)[0][1] == 1.0)


@pytest.mark.parametrize(
    "gate", [train.Optimizer.GATE_NONE, train.Optimizer.GATE_OP, train.Optimizer.GATE_GRAPH]
)
def test_gates_for_no_other_gradients_are_no_obstacle(gate):
    with harness.graph_and_session():
        model = Model()
        train.AdagradOptimizer(0.1).minimize(model.loss, var_list=model.tables, gate_gradients=gate)
        assert _update_ops() == (1, 0)


def test_a_gate_that_waits_for_other_gradients_is_respected():
    with harness.graph_and_session():
        model = Model()
        dense = tf.compat.v1.get_variable("dense", initializer=1.0)
        train.AdagradOptimizer(0.1).minimize(model.loss * dense, gate_gradients=train.Optimizer.GATE_GRAPH)
        assert _update_ops() == (0, 3)


def test_gradients_of_two_groups_are_added_up_first():
    with harness.graph_and_session() as session:
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
            pairs = list(zip(gradients, model.tables, strict=True))
            steps = [
                train.GradientDescentOptimizer(0.1).apply_gradients([pairs[2], pairs[0]]),
                train.AdagradOptimizer(0.1).apply_gradients(pairs[1:2]),
            ]
            assert _update_ops() == ((2, 0) if fused else (0, 3))
            harness.initialize(session)
            for seed in range(3):
                session.run(steps, model.feed(seed))
            return model.contents(session)

    for one, other in zip(contents(True), contents(False), strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_gradients_of_weights_are_taken_before_rows_change():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name="table", dim=2, initializer=tf.ones_initializer())
        weights = tf.compat.v1.get_variable("weights", initializer=[1.0, 2.0], use_resource=True)
        places = [[0, 0], [0, 1]]
        rows = sok.group_embedding_lookup_sparse(
            [table],
            [tf.SparseTensor(places, tf.constant([5, 6], tf.int64), [1, 2])],
            combiners=["sum"],
            sp_weights=[tf.SparseTensor(places, weights, [1, 2])],
        )
        step = train.GradientDescentOptimizer(10.0).minimize(tf.reduce_sum(rows[0]))
        assert _update_ops() == (0, 1)
        harness.initialize(session)
        session.run(step)
        np.testing.assert_array_equal(session.run(weights), [1.0 - 20.0, 2.0 - 20.0])


@pytest.mark.parametrize("make", [train.AdamOptimizer, *_keras_optimizers()])
def test_a_step_is_over_when_the_train_op_is(make):
    def rows_after_step(fused):
        with harness.graph_and_session() as session, sok.optimizers.fused_updates(fused):
            model = Model()
            gradients = tf.gradients(model.loss, model.tables)
            step = make(0.1).apply_gradients(zip(gradients, model.tables, strict=True))
            with tf.control_dependencies([step]):
                after = sok.group_embedding_lookup_sparse(model.tables, model.ids, combiners=["sum"] * 3)
            harness.initialize(session)
            return session.run(after, model.feed(2))

    for one, other in zip(rows_after_step(True), rows_after_step(False), strict=True):
        np.testing.assert_array_equal(one, other)


def _raw_update(model, **changed):
    tf.gradients(model.loss, model.tables)
    operations = tf.compat.v1.get_default_graph().get_operations()
    gradient = next(op for op in operations if op.type == "SokGroupLookupGrad")
    arguments = {
        "handles": list(gradient.inputs[:3]),
        "plan": gradient.inputs[3],
        "gradients": list(gradient.inputs[4:]),
        "hyper": [tf.constant([0.1])] * 3,
        "dims": gradient.get_attr("dims"),
        "trained": [0, 1, 2],
        "optimizer": "sgd",
    }
    return native.ops.sok_group_lookup_apply_gradients(**{**arguments, **changed})


def _no_plan():
    return tf.raw_ops.EmptyTensorList(
        element_shape=tf.constant([], tf.int32), max_num_elements=1, element_dtype=tf.int32
    )


def _zeros(*widths):
    return [tf.zeros([7, width]) for width in widths]


BAD_INPUTS = {
    "no plan": (lambda: {"plan": _no_plan()}, "plan"),
    "gradients of one output too few": (lambda: {"gradients": _zeros(4, 16)}, "gradients"),
    "a gradient of another shape": (lambda: {"gradients": _zeros(4, 16, 5)}, "gradients"),
    "a rate that is not finite": (lambda: {"hyper": [tf.constant([np.nan])] * 3}, "table0.*nan"),
    "too many hyper-parameters": (lambda: {"hyper": [tf.constant([0.1, 0.2])] * 3}, "table0"),
    "an unknown optimizer": (lambda: {"optimizer": "none"}, "none"),
    "a table twice": (lambda: {"trained": [0, 1, 1]}, "trained"),
    "a table that is not there": (lambda: {"trained": [0, 1, 3]}, "trained"),
    "another dim": (lambda: {"dims": [4, 16, 4]}, "table2.*dim"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_inputs_are_errors_that_change_nothing(case):
    change, message = BAD_INPUTS[case]
    with harness.graph_and_session() as session:
        model = Model()
        step = _raw_update(model, **change())
        harness.initialize(session)
        feed = model.feed(1)
        session.run(model.rows, feed)
        before = model.contents(session)
        with pytest.raises(tf.errors.OpError, match=message):
            session.run(step, feed)
        for was, now in zip(before, model.contents(session), strict=True):
            for a, b in zip(was, now, strict=True):
                np.testing.assert_array_equal(a, b)
