"""An optimizer that cannot train embedding variables is an error that names it when the graph is built."""

import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok
from sparse_operation_kit import compat
from sparse_operation_kit.optimizers.mapping import known_optimizers

pytestmark = pytest.mark.cases_on_gpu(6)

train = tf.compat.v1.train
legacy = compat.legacy_keras_optimizers()[0][1]


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


def test_optimizers_without_state_share_a_table():
    with harness.graph_and_session() as session:
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
def test_a_value_out_of_range_is_an_error_of_the_step_that_names_it(make, message):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name="my_table", dim=2, initializer=1.0)
        rows = tf.nn.embedding_lookup(table, [5])
        step = optimizer_parity.train(make(), tf.reduce_sum(rows), [table])
        harness.initialize(session)
        session.run(rows)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(step)
        assert session.run(rows).tolist() == [[1.0, 1.0]]
