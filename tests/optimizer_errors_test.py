"""An optimizer that cannot train embedding variables is an error that names it when the graph is built."""

import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat
from sparse_operation_kit.optimizers.mapping import known_optimizers

_KERAS = compat.legacy_keras_optimizers()


@pytest.fixture
def table():
    with harness.graph_and_session():
        yield sok.EmbeddingVariable(name="my_table", dim=2)


def _gradient():
    return tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0], tf.int64))


def test_unknown_optimizer_is_named_with_the_known_ones(table):
    with pytest.raises(TypeError) as error:
        tf.compat.v1.train.ProximalAdagradOptimizer(0.1).apply_gradients([(_gradient(), table)])
    message = str(error.value)
    assert "ProximalAdagradOptimizer cannot train embedding variable 'my_table'" in message
    for known in known_optimizers():
        assert known.public_name in message


def test_unknown_legacy_keras_optimizer(table):
    class Unknown(_KERAS[0][1].Optimizer):
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


class _Renamed(tf.compat.v1.train.GradientDescentOptimizer):
    """A subclass that does not change the updates."""

    def get_name(self):
        return "renamed"


class _Changed(tf.compat.v1.train.GradientDescentOptimizer):
    """A subclass that changes the updates with dense gradients."""

    def _resource_apply_dense(self, grad, handle):
        return super()._resource_apply_dense(2 * grad, handle)


def test_subclass_that_keeps_the_updates_trains(table):
    assert isinstance(_Renamed(0.1).apply_gradients([(_gradient(), table)]), tf.Operation)


def test_subclass_that_changes_the_updates_is_refused(table):
    with pytest.raises(
        TypeError, match="it changes _resource_apply_dense of tf.compat.v1.train.GradientDescent"
    ):
        _Changed(0.1).apply_gradients([(_gradient(), table)])


def test_amsgrad_is_refused(table):
    with pytest.raises(ValueError, match="amsgrad=True cannot train embedding variables"):
        _KERAS[0][1].Adam(amsgrad=True).apply_gradients([(_gradient(), table)])


def test_amsgrad_of_our_adam_is_refused():
    with pytest.raises(ValueError, match="amsgrad=True is not supported"):
        sok.optimizers.Adam(amsgrad=True)


def test_all_gradients_missing_is_tensorflows_error(table):
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        tf.compat.v1.train.AdamOptimizer().apply_gradients([(None, table)])


@pytest.mark.parametrize("first", ["AdamOptimizer", "GradientDescentOptimizer"])
def test_second_optimizer_with_state_is_refused(table, first):
    getattr(tf.compat.v1.train, first)(0.1).apply_gradients([(_gradient(), table)])
    with pytest.raises(ValueError, match=f"'my_table' is trained by a {first} already"):
        tf.compat.v1.train.AdamOptimizer().apply_gradients([(_gradient(), table)])


def test_optimizers_without_state_share_a_table():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name="my_table", dim=2, initializer=1.0)
        rows = tf.nn.embedding_lookup(table, [5])
        steps = [
            tf.compat.v1.train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(rows), var_list=[table])
            for rate in (0.25, 0.5)
        ]
        harness.initialize(session)
        for step in steps:
            session.run(step)
        assert session.run(rows).tolist() == [[0.25, 0.25]]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: tf.compat.v1.train.GradientDescentOptimizer(float("nan")), "learning_rate"),
        (lambda: tf.compat.v1.train.AdamOptimizer(0.1, beta1=1.5), "beta1"),
        (lambda: tf.compat.v1.train.FtrlOptimizer(0.0), "learning_rate"),
        (lambda: tf.compat.v1.train.AdadeltaOptimizer(0.1, rho=1.25), "rho must be .* got 1.25"),
        (lambda: tf.compat.v1.train.AdadeltaOptimizer(0.1, epsilon=-3.0), "epsilon must be .* got -3"),
    ],
)
def test_hyper_parameter_out_of_range_is_an_error_of_the_step(make, what):
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name="my_table", dim=2, initializer=1.0)
        rows = tf.nn.embedding_lookup(table, [5])
        step = make().minimize(tf.reduce_sum(rows), var_list=[table])
        harness.initialize(session)
        session.run(rows)
        with pytest.raises(tf.errors.InvalidArgumentError, match=what):
            session.run(step)
        assert session.run(rows).tolist() == [[1.0, 1.0]]
