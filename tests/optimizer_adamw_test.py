"""AdamW and AdamWOptimizer: decoupled weight decay of the batch's rows, on tables and ordinary variables."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok

pytestmark = pytest.mark.cases_on_gpu(2)

v1 = tf.compat.v1
ROWS = 20
DIM = 3


class Reference:
    """AdamW row by row, in double precision."""

    def __init__(self, beta1, beta2, epsilon):
        self.rows = np.ones([ROWS, DIM])
        self.m, self.v = np.zeros([ROWS, DIM]), np.zeros([ROWS, DIM])
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.steps = 0

    def step(self, touched, gradients, rate, weight_decay, dense=False):
        self.steps += 1
        alpha = rate * np.sqrt(1 - self.beta2**self.steps) / (1 - self.beta1**self.steps)
        for row in range(ROWS) if dense else np.unique(touched):
            g = gradients[touched == row].sum(axis=0)
            self.m[row] = self.beta1 * self.m[row] + (1 - self.beta1) * g
            self.v[row] = self.beta2 * self.v[row] + (1 - self.beta2) * g * g
            self.rows[row] *= 1 - weight_decay
            self.rows[row] -= alpha * self.m[row] / (np.sqrt(self.v[row]) + self.epsilon)


class Model:
    """A table or variable that is trained with fed gradients."""

    def __init__(self, kind, optimizer, dense=False):
        self.touched = v1.placeholder(tf.int64, [None])
        self.gradients = v1.placeholder(tf.float32, [None, DIM])
        if kind == "table":
            self.variable = sok.EmbeddingVariable("x", DIM, initializer="ones")
            self.rows = tf.nn.embedding_lookup(self.variable, tf.range(ROWS, dtype=tf.int64))
        else:
            self.variable = v1.Variable(tf.ones([ROWS, DIM]), use_resource=kind == "resource", name="x")
            self.rows = tf.identity(self.variable)
        if dense:
            summed = tf.math.unsorted_segment_sum(self.gradients, self.touched, ROWS)
            loss = tf.reduce_sum(self.variable * summed)
        else:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(self.variable, self.touched) * self.gradients)
        self.train = optimizer.minimize(loss, var_list=[self.variable])

    def feed(self, touched, gradients):
        return {self.touched: touched, self.gradients: gradients}


def _batches(steps=40):
    """Batches with ids that occur several times, and ids that are absent for long; one batch is empty."""
    rng = np.random.default_rng(4)
    for number in range(steps):
        low = 0 if number % 13 < 3 else 10
        touched = rng.integers(low, ROWS - 1, 0 if number == 7 else 15)
        yield touched, rng.standard_normal([len(touched), DIM]).astype(np.float32)


MAKERS = {
    "AdamWOptimizer": lambda wd, lr: sok.optimizers.AdamWOptimizer(wd, lr, 0.8, 0.95, 1e-4),
    "AdamW": lambda wd, lr: sok.optimizers.AdamW(wd, lr, beta_1=0.8, beta_2=tf.constant(0.95), epsilon=1e-4),
    "functions": lambda wd, lr: sok.optimizers.AdamW(lambda: wd, lambda: lr, 0.8, 0.95, 1e-4),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("kind", ["table", "resource", "reference", "dense", "dense_reference"])
def test_follows_the_definition_with_a_rate_and_a_decay_that_change(kind, name):
    dense = kind.startswith("dense")
    kind = {"dense": "resource", "dense_reference": "reference"}.get(kind, kind)
    with harness.graph_and_session() as session:
        rate, decay = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
        model = Model(kind, MAKERS[name](decay, rate), dense)
        harness.initialize(session)
        reference = Reference(0.8, 0.95, 1e-4)
        for number, (touched, gradients) in enumerate(_batches()):
            now = (0.02 * (1 + number % 3), 0.1 * (number % 4))
            session.run(model.train, {**model.feed(touched, gradients), rate: now[0], decay: now[1]})
            reference.step(touched, gradients, *now, dense=dense)
            np.testing.assert_allclose(session.run(model.rows), reference.rows, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["table", "resource"])
def test_rows_without_a_gradient_keep_their_bits(kind):
    with harness.graph_and_session() as session:
        model = Model(kind, sok.optimizers.AdamW(0.1, 0.1))
        harness.initialize(session)
        rng = np.random.default_rng(1)
        session.run(model.train, model.feed(np.arange(ROWS), rng.standard_normal([ROWS, DIM])))
        before = session.run(model.rows)
        for _ in range(30):
            session.run(model.train, model.feed([3, 3, 8], rng.standard_normal([3, DIM])))
        after = session.run(model.rows)
        changed = np.any(before != after, axis=1)
        assert np.flatnonzero(changed).tolist() == [3, 8]


def test_a_gradient_of_zero_decays_by_the_decay_alone():
    with harness.graph_and_session() as session:
        model = Model("table", sok.optimizers.AdamW(0.25, learning_rate=123.0))
        harness.initialize(session)
        session.run(model.train, model.feed([2, 2], np.zeros([2, DIM])))
        assert session.run(model.rows)[2].tolist() == [0.75] * DIM


def test_without_decay_it_is_lazy_adam():
    def rows(optimizer):
        with harness.graph_and_session() as session:
            model = Model("table", optimizer)
            harness.initialize(session)
            for batch in _batches():
                session.run(model.train, model.feed(*batch))
            return session.run(model.rows)

    lazy = sok.tf.keras.optimizers.LazyAdamOptimizer(0.1, epsilon=1e-8)
    np.testing.assert_array_equal(rows(sok.optimizers.AdamWOptimizer(0.0, 0.1)), rows(lazy))


def _halving(step):
    return 0.1 * tf.pow(0.5, tf.cast(step, tf.float32) / 10.0)


@pytest.mark.parametrize("kind", ["table", "resource"])
def test_schedules_of_rate_and_decay_are_given_the_iterations(kind):
    with harness.graph_and_session() as session:
        optimizer = sok.optimizers.AdamW(lambda step: 0.5 * _halving(step), _halving)
        model = Model(kind, optimizer)
        harness.initialize(session)
        reference = Reference(0.9, 0.999, 1e-7)
        for number, (touched, gradients) in enumerate(_batches(20)):
            session.run(model.train, model.feed(touched, gradients))
            rate = 0.1 * 0.5 ** (number / 10)
            reference.step(touched, gradients, rate, 0.5 * rate)
        np.testing.assert_allclose(session.run(model.rows), reference.rows, rtol=2e-5, atol=2e-5)
        assert session.run(optimizer.iterations) == 20


def test_a_keras_schedule_is_one():
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)
    deviation = optimizer_parity.worst_deviation(
        lambda lr: sok.optimizers.AdamW(schedule, schedule),
        lambda lr: sok.optimizers.AdamW(_halving, _halving),
        steps=20,
    )
    assert deviation < 5e-6


@pytest.mark.parametrize("weight_decay", [-0.1, 1.5, float("nan")])
def test_a_decay_out_of_range_is_an_error_that_changes_nothing(weight_decay):
    with harness.graph_and_session() as session:
        model = Model("table", sok.optimizers.AdamW(tf.constant(weight_decay)))
        harness.initialize(session)
        before = session.run(model.rows)
        with pytest.raises(tf.errors.InvalidArgumentError, match="weight_decay must be between 0 and 1"):
            session.run(model.train, model.feed([1], np.ones([1, DIM])))
        np.testing.assert_array_equal(session.run(model.rows), before)


def test_amsgrad_is_refused():
    with pytest.raises(ValueError, match="amsgrad=True is not supported"):
        sok.optimizers.AdamW(0.01, amsgrad=True)


def test_arguments_and_their_defaults():
    optimizer = sok.optimizers.AdamWOptimizer(0.01)
    found = (optimizer._lr, optimizer._beta1, optimizer._beta2, optimizer._epsilon, optimizer.get_name())
    assert found == (0.001, 0.9, 0.999, 1e-8, "AdamW")
    optimizer = sok.optimizers.AdamW(weight_decay=0.01)
    assert (optimizer._beta1, optimizer._beta2, optimizer._epsilon) == (0.9, 0.999, 1e-7)
