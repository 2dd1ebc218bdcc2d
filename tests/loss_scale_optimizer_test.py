# Tags: versions
"""LossScaleOptimizer: scaled losses and gradients, applied and skipped steps, changes of the scale."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

import harness
import optimizer_parity
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat

pytestmark = pytest.mark.cases_on_gpu(1)
session = harness.session

LossScaleOptimizer = sok.tf.keras.mixed_precision.LossScaleOptimizer
train = tf.compat.v1.train

INNER = {
    "sgd": lambda lr: train.GradientDescentOptimizer(lr),
    "adagrad": lambda lr: train.AdagradOptimizer(lr),
    "adam": lambda lr: train.AdamOptimizer(lr),
    "sok_adam": lambda lr: sok.optimizers.Adam(lr),
    "lazy_adam": lambda lr: sok.tf.keras.optimizers.LazyAdamOptimizer(lr),
}
if compat.legacy_keras_optimizers():
    _legacy = compat.legacy_keras_optimizers()[0][1]
    INNER["keras_sgd"] = lambda lr: _legacy.SGD(lr, momentum=0.5)
    INNER["keras_nadam"] = lambda lr: _legacy.Nadam(lr)
    INNER["keras_adam"] = lambda lr: _legacy.Adam(lr)


@pytest.fixture(params=[True, False], ids=["functions", "switches"])
def control_flow_v2(request, monkeypatch):
    """Runs a test with both of TensorFlow's implementations of tf.cond."""
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", request.param)
    resources_before = tf.compat.v1.resource_variables_enabled()
    # Functions take no reference variables, which 1.15 makes by default.
    tf.compat.v1.enable_resource_variables()
    yield
    if not resources_before:
        tf.compat.v1.disable_resource_variables()


@pytest.mark.parametrize("name", INNER)
def test_trains_as_the_wrapped_optimizer(name, control_flow_v2):
    # Scaling by a power of two does not round.
    make = INNER[name]
    deviation = optimizer_parity.worst_deviation(
        lambda lr: LossScaleOptimizer(make(lr), initial_scale=2.0**10, dynamic_growth_steps=7), make
    )
    assert deviation < 5e-6


class _Model:
    """A table and a dense variable; the gradients are `poison` for its rows, and `dense_poison`."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
        self.dense = optimizer_parity.resource([1.0, 1.0])
        self.poison = tf.compat.v1.placeholder(tf.float32, [2, 2])
        self.dense_poison = tf.compat.v1.placeholder(tf.float32, [])
        self.rows = tf.nn.embedding_lookup(self.table, [1, 2])
        self.global_step = train.get_or_create_global_step()
        loss = tf.reduce_sum(self.rows * self.poison) + tf.reduce_sum(self.dense) * self.dense_poison
        self.step = optimizer.minimize(loss, global_step=self.global_step, var_list=[self.table, self.dense])

    def run(self, session, poison=0.5, dense_poison=0.5):
        feed = {self.poison: np.full([2, 2], 0.5, np.float32), self.dense_poison: dense_poison}
        feed[self.poison][1, 0] = poison
        session.run(self.step, feed)

    def state(self, session):
        return session.run(
            [self.rows, self.dense, self.global_step, *_counters(self.optimizer.inner_optimizer)]
        )


def _counters(optimizer):
    return [v for v in optimizer.variables() if v.shape.rank == 0] if callable(optimizer.variables) else []


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", ["poison", "dense_poison"])
def test_a_step_that_is_not_finite_changes_nothing(session, name, bad, where):
    model = _Model(LossScaleOptimizer(INNER[name](0.1), initial_scale=64.0))
    harness.initialize(session)
    model.run(session)
    before = model.state(session)
    model.run(session, **{where: bad})
    harness.assert_equal_arrays(model.state(session), before)
    assert session.run(model.optimizer.loss_scale) == 32.0
    model.run(session)
    after = model.state(session)
    assert after[2] == before[2] + 1
    assert np.all(after[0] < before[0]) and np.all(after[1] < before[1])


def test_scale_grows_after_good_steps_and_halves_after_bad_ones(session, control_flow_v2):
    model = _Model(LossScaleOptimizer(train.GradientDescentOptimizer(0.1), "dynamic", 16.0, 3))
    harness.initialize(session)
    scales = []
    for poison in (0, 0, 0, 0, 0, np.inf, 0, 0, 0, np.nan, np.nan):
        model.run(session, poison=poison)
        scales.append(float(session.run(model.optimizer.loss_scale)))
    assert scales == [16, 16, 32, 32, 32, 16, 16, 16, 32, 16, 8]


def test_scale_stays_at_least_one_and_finite():
    with harness.graph_and_session() as session:
        model = _Model(LossScaleOptimizer(train.GradientDescentOptimizer(0.1), "dynamic", 2.0))
        harness.initialize(session)
        for _ in range(3):
            model.run(session, poison=np.inf)
        assert session.run(model.optimizer.loss_scale) == 1.0
    with harness.graph_and_session() as session:
        optimizer = LossScaleOptimizer(train.GradientDescentOptimizer(0.1), "dynamic", 2.0**127, 1)
        table = sok.EmbeddingVariable(name="table", dim=2)
        rows = tf.nn.embedding_lookup(table, [1])
        step = optimizer.apply_gradients(zip_equal(tf.gradients(tf.reduce_sum(rows), [table]), [table]))
        harness.initialize(session)
        session.run(step)
        assert session.run(optimizer.loss_scale) == 2.0**127


def test_fixed_scale_stays_and_bad_steps_are_skipped(session):
    optimizer = LossScaleOptimizer(train.AdagradOptimizer(0.1), 128)
    model = _Model(optimizer)
    harness.initialize(session)
    model.run(session, poison=np.inf)
    np.testing.assert_array_equal(session.run(model.rows), np.ones([2, 2]))
    model.run(session)
    assert np.all(session.run(model.rows) < 1.0)
    assert session.run(optimizer.loss_scale) == 128.0
    assert optimizer.dynamic is False and optimizer.dynamic_growth_steps is None


def test_by_hand_in_float16(session):
    # A gradient of 2^-26 is zero in float16, unless the loss is scaled.
    tiny = 2.0**-26
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=0.0)
    rows = tf.nn.embedding_lookup(table, [1])
    loss = tf.reduce_sum(tf.cast(rows, tf.float16) * tf.constant(2.0**-13, tf.float16)) * 2.0**-13
    optimizer = LossScaleOptimizer(train.GradientDescentOptimizer(1.0), 2.0**15)
    scaled = tf.gradients(optimizer.get_scaled_loss(loss), [table])
    gradients = optimizer.get_unscaled_gradients(scaled)
    assert isinstance(gradients[0], tf.IndexedSlices)
    step = optimizer.apply_gradients(zip_equal(gradients, [table]))
    harness.initialize(session)
    assert not np.any(session.run(tf.gradients(loss, [table])[0].values))
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), np.full([1, 2], -tiny))


def test_unscaled_gradients_keep_their_kinds(session):
    optimizer = LossScaleOptimizer(train.GradientDescentOptimizer(1.0), 4.0)
    slices = tf.IndexedSlices(tf.constant([[8.0]]), tf.constant([3]), tf.constant([9, 1]))
    dense, sparse, missing = optimizer.get_unscaled_gradients([tf.constant(2.0, tf.float16), slices, None])
    assert missing is None and dense.dtype == tf.float16
    assert session.run([dense, sparse.values, sparse.indices]) == [0.5, [[2.0]], [3]]


def test_scaled_loss_of_a_function(session):
    optimizer = LossScaleOptimizer(train.GradientDescentOptimizer(1.0), 4.0)
    assert session.run(optimizer.get_scaled_loss(lambda: tf.constant(2.5))()) == 10.0


def test_keras_order_of_minimize(session):
    table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
    rows = tf.nn.embedding_lookup(table, [1])
    step = LossScaleOptimizer(train.GradientDescentOptimizer(0.5)).minimize(tf.reduce_sum(rows), [table])
    harness.initialize(session)
    session.run(step)
    np.testing.assert_array_equal(session.run(rows), [[0.5, 0.5]])


def test_state_is_among_the_variables_and_the_train_op_is_the_outer_one(session):
    optimizer = LossScaleOptimizer(train.AdamOptimizer(), name="Scaled")
    model = _Model(optimizer)
    names = {variable.name for variable in optimizer.variables()}
    assert {"Scaled/current_loss_scale:0", "Scaled/good_steps:0"} < names
    assert any("beta1_power" in name for name in names)
    assert tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP) == [model.step]
    assert optimizer.get_slot(model.table, "m") is None
    assert optimizer.get_slot(model.dense, "m") is not None
    assert optimizer.get_slot_names() == ["m", "v"]


@pytest.mark.parametrize(
    ("arguments", "dynamic", "scale", "steps"),
    [
        ({}, True, 2.0**15, 2000),
        ({"loss_scale": "dynamic"}, True, 2.0**15, 2000),
        ({"loss_scale": 512}, False, 512.0, None),
        ({"dynamic": True, "initial_scale": 8, "dynamic_growth_steps": 5}, True, 8.0, 5),
        ({"dynamic": False, "initial_scale": 8}, False, 8.0, None),
        ({"initial_scale": 1024}, True, 1024.0, 2000),
    ],
)
def test_forms_of_the_arguments(arguments, dynamic, scale, steps):
    inner = train.AdamOptimizer()
    for optimizer in (
        LossScaleOptimizer(inner, **arguments),
        LossScaleOptimizer(inner_optimizer=inner, **arguments),
    ):
        assert optimizer.inner_optimizer is inner
        assert (optimizer.dynamic, optimizer.initial_scale, optimizer.dynamic_growth_steps) == (
            dynamic,
            scale,
            steps,
        )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"loss_scale": "static"}, ValueError, "'static'"),
        ({"loss_scale": 0}, ValueError, "positive, not 0"),
        ({"loss_scale": float("nan")}, ValueError, "positive, not nan"),
        ({"loss_scale": -2.0}, ValueError, "positive, not -2.0"),
        ({"initial_scale": -1}, ValueError, "positive, not -1"),
        ({"dynamic": False}, ValueError, "needs initial_scale"),
        ({"loss_scale": 8, "initial_scale": 8}, ValueError, "both give the scale"),
        ({"loss_scale": 8, "dynamic_growth_steps": 8}, ValueError, "dynamic_growth_steps=8"),
        ({"dynamic_growth_steps": 0}, ValueError, "at least 1, not 0"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        LossScaleOptimizer(train.AdamOptimizer(), **arguments)


def test_only_optimizers_are_wrapped():
    for inner in (None, "adam", LossScaleOptimizer(train.AdamOptimizer())):
        with pytest.raises(TypeError):
            LossScaleOptimizer(inner)


def test_no_gradient_at_all_is_an_error(session):
    with pytest.raises(ValueError, match="No gradients provided"):
        LossScaleOptimizer(train.AdamOptimizer()).apply_gradients([(None, tf.Variable(1.0))])
