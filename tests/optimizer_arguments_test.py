# Tags: versions
"""Arguments and own variables of optimizers: a table is trained like a tf.Variable, and what cannot train
one is named. `optimizer_registry_test` tests every optimizer."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat
from sparse_operation_kit.optimizers.mapping import known_optimizers

pytestmark = pytest.mark.cases_on_gpu(4)
train = tf.compat.v1.train
legacy = compat.legacy_keras_optimizers()[0][1]
_IS_1 = compat.VERSION < (2, 0)

OPTIMIZERS = {
    "sgd_locking": lambda lr: train.GradientDescentOptimizer(lr, use_locking=True),
    "momentum_tensor": lambda lr: train.MomentumOptimizer(lr, tf.constant(0.8)),
    "adagrad_initial": lambda lr: train.AdagradOptimizer(lr, initial_accumulator_value=0.7, use_locking=True),
    "rmsprop": lambda lr: train.RMSPropOptimizer(lr),
    "rmsprop_momentum": lambda lr: train.RMSPropOptimizer(lr, decay=0.8, momentum=0.5, epsilon=1e-3),
    "rmsprop_centered": lambda lr: train.RMSPropOptimizer(lr, momentum=0.3, epsilon=1e-2, centered=True),
    "adadelta": lambda lr: train.AdadeltaOptimizer(lr * 100),
    "adadelta_arguments": lambda lr: train.AdadeltaOptimizer(lr * 2, rho=0.6, epsilon=0.01, use_locking=True),
    "adadelta_tensors": lambda lr: train.AdadeltaOptimizer(lambda: lr, tf.constant(0.8), tf.constant(0.1)),
    "ftrl": lambda lr: train.FtrlOptimizer(lr),
    "ftrl_power": lambda lr: train.FtrlOptimizer(lr, learning_rate_power=-0.7, initial_accumulator_value=0.3),
    "ftrl_regularized": lambda lr: train.FtrlOptimizer(
        lr, l1_regularization_strength=0.01, l2_regularization_strength=0.02
    ),
    "ftrl_shrinkage": lambda lr: train.FtrlOptimizer(
        lr, l2_regularization_strength=0.01, l2_shrinkage_regularization_strength=0.05
    ),
    "adam_arguments": lambda lr: train.AdamOptimizer(lr, beta1=0.7, beta2=0.95, epsilon=1e-3),
    "adam_callables": lambda lr: train.AdamOptimizer(lambda: lr, beta1=lambda: 0.8),
    "keras_sgd_momentum_tensor": lambda lr: legacy.SGD(lr, momentum=tf.constant(0.5)),
    "keras_sgd_decay": lambda lr: legacy.SGD(0.1, decay=0.1),
    "keras_sgd_schedule": lambda lr: legacy.SGD(_keras_schedule()),
    "keras_adagrad_arguments": lambda lr: legacy.Adagrad(lr, initial_accumulator_value=0.5, epsilon=1e-2),
    "keras_adagrad_callable": lambda lr: legacy.Adagrad(lambda: lr),
    "keras_ftrl": lambda lr: legacy.Ftrl(lr),
    "keras_ftrl_arguments": lambda lr: legacy.Ftrl(
        lr,
        learning_rate_power=-0.6,
        initial_accumulator_value=0.2,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.02,
        l2_shrinkage_regularization_strength=0.03,
        **({} if _IS_1 else {"beta": 0.4}),
    ),
    "keras_adam_arguments": lambda lr: legacy.Adam(lr, beta_1=0.7, beta_2=tf.constant(0.95), epsilon=1e-3),
    "keras_adam_schedule": lambda lr: legacy.Adam(_keras_schedule(), decay=0.01),
    "keras_adadelta": lambda lr: legacy.Adadelta(lr * 100),
    "keras_adadelta_arguments": lambda lr: legacy.Adadelta(lr, rho=tf.constant(0.7), epsilon=0.1),
    "keras_adadelta_schedule": lambda lr: legacy.Adadelta(_keras_schedule(), epsilon=0.01),
    "keras_adamax_arguments": lambda lr: legacy.Adamax(lr, beta_1=tf.constant(0.5), beta_2=0.9, epsilon=1e-2),
    "keras_adamax_schedule": lambda lr: legacy.Adamax(_keras_schedule(), decay=0.01),
    "keras_nadam_arguments": lambda lr: legacy.Nadam(lr, beta_1=0.7, beta_2=tf.constant(0.95), epsilon=1e-3),
    "keras_nadam_schedule": lambda lr: legacy.Nadam(lr, schedule_decay=2.0),
}
if compat.IS_TENSORFLOW_2:
    OPTIMIZERS["ftrl_beta"] = lambda lr: train.FtrlOptimizer(lr, beta=0.5)


def _keras_schedule():
    keras = tf.keras if compat.HAS_KERAS_2 else importlib.import_module("tf_keras")
    return keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=5, decay_rate=0.5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trains_as_on_a_variable_in_each_step(name):
    deviation = optimizer_parity.worst_deviation(OPTIMIZERS[name], reads=optimizer_parity.EACH)
    assert deviation < 5e-6


def _adam(lr, beta1=0.9, beta2=0.999, epsilon=1e-7):
    """TensorFlow's, with the defaults of `sok.optimizers.Adam`."""
    return train.AdamOptimizer(lr, beta1, beta2, epsilon)


def _halving(step):
    return 0.1 * tf.pow(0.5, tf.cast(step, tf.float32) / 5.0)


def _halving_adam(lr):
    """TensorFlow's, with a rate that depends on the number of its steps."""
    step = tf.Variable(0, dtype=tf.int64)
    optimizer = _adam(lambda: _halving(step))
    finish = optimizer._finish

    def count(update_ops, name_scope):
        with tf.control_dependencies(update_ops):
            counted = step.assign_add(1).op
        return finish([*update_ops, counted], name_scope)

    optimizer._finish = count
    return optimizer


# sok.optimizers.Adam, and TensorFlow's optimizer that it is.
ADAMS = {
    "default": (sok.optimizers.Adam, _adam),
    "arguments": (
        lambda lr: sok.optimizers.Adam(learning_rate=lr, beta_1=0.7, beta_2=tf.constant(0.9), epsilon=1e-3),
        lambda lr: _adam(lr, 0.7, 0.9, 1e-3),
    ),
    "function": (lambda lr: sok.optimizers.Adam(lambda: 2 * lr), lambda lr: _adam(2 * lr)),
    "function of the step": (lambda lr: sok.optimizers.Adam(_halving), _halving_adam),
    "keras schedule": (
        lambda lr: sok.optimizers.Adam(
            tf.keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=5, decay_rate=0.5)
        ),
        _halving_adam,
    ),
}


@pytest.mark.parametrize("name", ADAMS)
def test_adam_is_tensorflows(name):
    assert optimizer_parity.worst_deviation(*ADAMS[name]) < 5e-6


@pytest.mark.parametrize(
    "clip", [{"clipvalue": 0.01}, {"clipnorm": 0.02}, *([] if _IS_1 else [{"global_clipnorm": 0.05}])]
)
def test_clipping_of_keras_optimizers_acts(clip):
    # The norm of a table's gradient is computed after summing per row. TensorFlow does not sum the gradients
    # of repeated ids first. Both agree for distinct ids.
    fed = optimizer_parity.batches_and_rates(distinct=True)
    deviation = optimizer_parity.worst_deviation(lambda lr: legacy.Adagrad(lr, **clip), fed=fed)
    unclipped = optimizer_parity.worst_deviation(
        lambda lr: legacy.Adagrad(lr, **clip), lambda lr: legacy.Adagrad(lr), fed=fed
    )
    assert deviation < 5e-6 < unclipped


@pytest.fixture
def table():
    with harness.graph_and_session():
        yield sok.EmbeddingVariable(name="my_table", dim=2)


def _gradient():
    return tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0], tf.int64))


def test_unknown_optimizer_is_named_with_the_known_ones(table):
    with pytest.raises(TypeError) as error:
        train.ProximalAdagradOptimizer(0.1).apply_gradients([(_gradient(), table)])
    message = str(error.value)
    assert "ProximalAdagradOptimizer cannot train embedding variable 'my_table'" in message
    for known in known_optimizers():
        assert known.public_name in message


def test_unknown_legacy_keras_optimizer(table):
    class Unknown(legacy.Optimizer):
        """An optimizer that the library does not know."""

        def get_config(self):
            return {}

    with pytest.raises(TypeError, match="Unknown cannot train embedding variable 'my_table'"):
        Unknown("unknown").apply_gradients([(_gradient(), table)])


def test_newer_keras_optimizer(table):
    bases = compat.other_keras_optimizers()
    assert bool(bases) == (compat.VERSION >= (2, 11))
    for base in bases:
        optimizer = next(cls for cls in base.__subclasses__() if cls.__name__ == "SGD")()
        with pytest.raises(TypeError, match="SGD cannot train embedding variable 'my_table'"):
            optimizer.apply_gradients([(_gradient(), table)])


class _Renamed(train.GradientDescentOptimizer):
    """A subclass that does not change the updates."""

    def get_name(self):
        return "renamed"


def test_subclass_that_keeps_the_updates_trains(table):
    assert isinstance(_Renamed(0.1).apply_gradients([(_gradient(), table)]), tf.Operation)


def test_amsgrad_is_refused(table):
    with pytest.raises(ValueError, match="amsgrad=True cannot train embedding variables"):
        legacy.Adam(amsgrad=True).apply_gradients([(_gradient(), table)])


def _adagrad_decay(**changed):
    arguments = {"learning_rate": 0.1, "global_step": train.get_or_create_global_step()}
    return sok.optimizers.AdagradDecayOptimizer(**{**arguments, **changed})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sok.optimizers.Adam(amsgrad=True), "amsgrad=True is not supported"),
        (lambda: sok.optimizers.AdamW(0.01, amsgrad=True), "amsgrad=True is not supported"),
        (
            lambda: sok.optimizers.RowWiseAdagrad(0.1, initial_accumulator_value=-1),
            "initial_accumulator_value must be at least 0, not -1",
        ),
        (lambda: _adagrad_decay(global_step=None), "needs the global step"),
        (
            lambda: _adagrad_decay(initial_accumulator_value=0.0),
            "initial_accumulator_value must be above 0, not 0.0",
        ),
        (lambda: _adagrad_decay(accumulator_decay_step=0), "accumulator_decay_step must be above 0, not 0"),
        (lambda: _adagrad_decay(accumulator_decay_rate=1.0), r"in \(0, 1\), not 1.0"),
        (lambda: _adagrad_decay(accumulator_decay_rate=0.0), r"in \(0, 1\), not 0.0"),
    ],
)
def test_bad_arguments_of_own_optimizers(make, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        make()


def test_all_gradients_missing_is_tensorflows_error(table):
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        train.AdamOptimizer().apply_gradients([(None, table)])


@pytest.mark.parametrize("first", ["AdamOptimizer", "GradientDescentOptimizer"])
def test_second_optimizer_with_state_is_refused(table, first):
    getattr(train, first)(0.1).apply_gradients([(_gradient(), table)])
    with pytest.raises(ValueError, match=f"'my_table' is trained by a {first} already"):
        train.AdamOptimizer().apply_gradients([(_gradient(), table)])


def test_optimizers_without_state_share_a_table(session):
    table = sok.EmbeddingVariable(name="my_table", dim=2, initializer=1.0)
    rows = tf.nn.embedding_lookup(table, [5])
    steps = [
        train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(rows), var_list=[table])
        for rate in (0.25, 0.5)
    ]
    harness.initialize(session)
    for step in steps:
        session.run(step)
    assert session.run(rows).tolist() == [[0.25, 0.25]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: train.GradientDescentOptimizer(float("nan")), "learning_rate must be finite, got -?nan"),
        (lambda: train.AdamOptimizer(0.1, beta1=1.5), "beta1 must be .* got 1.5"),
        (lambda: train.FtrlOptimizer(0.0), "learning_rate must be .* got 0"),
        (lambda: train.AdadeltaOptimizer(0.1, rho=1.25), "rho must be .* got 1.25"),
        (lambda: train.AdadeltaOptimizer(0.1, epsilon=-3.0), "epsilon must be .* got -3"),
        (lambda: legacy.Nadam(0.1, beta_1=1.5), "beta1 must be .* got 1.5"),
        (lambda: legacy.Nadam(0.1, beta_2=1.0), "beta2 must be .* got 1"),
        (lambda: legacy.Nadam(float("inf")), "learning_rate must be finite, got inf"),
        (lambda: legacy.Nadam(0.1, epsilon=-2.0), "epsilon must be .* got -2"),
        (lambda: legacy.Adamax(0.1, beta_1=-0.5), "beta1 must be .* got -0.5"),
        (lambda: legacy.Adamax(0.1, beta_2=1.25), "beta2 must be .* got 1.25"),
        (lambda: legacy.Adadelta(0.1, rho=-0.25), "rho must be .* got -0.25"),
        (lambda: sok.optimizers.AdamW(tf.constant(-0.1)), "weight_decay must be between 0 and 1"),
        (lambda: sok.optimizers.AdamW(1.5), "weight_decay must be between 0 and 1"),
        (lambda: sok.optimizers.AdamW(float("nan")), "weight_decay must be between 0 and 1"),
    ],
)
def test_a_value_out_of_range_is_an_error_of_the_step_that_names_it(session, make, message):
    table = sok.EmbeddingVariable(name="my_table", dim=2, initializer=1.0)
    rows = tf.nn.embedding_lookup(table, [5])
    step = optimizer_parity.train(make(), tf.reduce_sum(rows), [table])
    harness.initialize(session)
    session.run(rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        session.run(step)
    assert session.run(rows).tolist() == [[1.0, 1.0]]


session = harness.session
LossScaleOptimizer = sok.tf.keras.mixed_precision.LossScaleOptimizer

OPTIMIZERS_OWN = {
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


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS_OWN))
def test_it_initializes_the_optimizers_own_variables_and_no_others(session, name):
    optimizer = OPTIMIZERS_OWN[name]()
    table, dense, train = model(optimizer)
    session.run([table.initializer, dense.initializer])
    session.run(optimizer.initializer)
    assert session.run(tf.compat.v1.report_uninitialized_variables()).size == 0
    session.run(train)
    trained = session.run([tf.nn.embedding_lookup(table, [4, 5]), dense])
    assert not np.any(trained[0] == 1.0)
    session.run(optimizer.initializer)
    harness.assert_equal_arrays(session.run([tf.nn.embedding_lookup(table, [4, 5]), dense]), trained)


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS_OWN))
def test_without_variables_it_does_nothing(session, name):
    optimizer = OPTIMIZERS_OWN[name]()
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


@pytest.mark.cases_on_gpu(2)
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
