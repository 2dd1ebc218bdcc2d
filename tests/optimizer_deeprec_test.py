"""AdagradDecayOptimizer and AdamAsyncOptimizer: DeepRec's arithmetic, on tables and on ordinary variables."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal

pytestmark = pytest.mark.cases_on_gpu(3)

v1 = tf.compat.v1
AdagradDecay = sok.optimizers.AdagradDecayOptimizer
AdamAsync = sok.optimizers.AdamAsyncOptimizer

ROWS = 20
DIM = 3
STEPS = 40


@dataclasses.dataclass
class AdagradDecayReference:
    """Row by row, in double precision."""

    decay_step: int = 5
    rate: float = 0.1
    initial: float = 0.1
    decay_rate: float = 0.7

    def __post_init__(self):
        self.accumulator = np.full([ROWS, DIM], self.initial)
        self.decays = np.zeros(ROWS, int)

    def optimizer(self):
        step = v1.train.get_or_create_global_step()
        return AdagradDecay(self.rate, step, self.initial, self.decay_step, self.decay_rate)

    def step(self, rows, touched, gradients, number, dense):
        period = (number + 1) // self.decay_step
        for row in range(ROWS) if dense else np.unique(touched):
            g = gradients[touched == row].sum(axis=0)
            if period > self.decays[row]:
                self.accumulator[row] = np.maximum(self.accumulator[row] * self.decay_rate, self.initial)
                self.decays[row] += 1
            self.accumulator[row] += g * g
            rows[row] -= self.rate * g / np.sqrt(self.accumulator[row])


@dataclasses.dataclass
class AdamAsyncReference:
    """Row by row, in double precision."""

    rmsprop: bool = False
    rate: float = 0.05
    beta1: float = 0.8
    beta2: float = 0.95
    epsilon: float = 1e-4

    def __post_init__(self):
        self.m, self.v = np.zeros([ROWS, DIM]), np.zeros([ROWS, DIM])
        self.powers = np.array([self.beta1, self.beta2])

    def optimizer(self):
        return AdamAsync(self.rate, self.beta1, self.beta2, self.epsilon, apply_sparse_rmsprop=self.rmsprop)

    def step(self, rows, touched, gradients, number, dense):
        del number
        alpha = self.rate * np.sqrt(1 - self.powers[1]) / (1 - self.powers[0])
        for row in range(ROWS) if dense else np.unique(touched):
            g = gradients[touched == row].sum(axis=0)
            self.v[row] = self.beta2 * self.v[row] + (1 - self.beta2) * g * g
            if self.rmsprop and not dense:
                step = self.rate * g / np.sqrt(self.v[row] + self.epsilon)
                self.m[row] = self.beta1 * self.m[row] + step
                rows[row] -= self.m[row]
            else:
                self.m[row] = self.beta1 * self.m[row] + (1 - self.beta1) * g
                rows[row] -= alpha * self.m[row] / (np.sqrt(self.v[row]) + self.epsilon)
        if dense or (len(touched) and not self.rmsprop):
            self.powers *= (self.beta1, self.beta2)


REFERENCES = {
    "adagrad_decay": AdagradDecayReference,
    "adagrad_decay_each_step": lambda: AdagradDecayReference(decay_step=1),
    "adagrad_decay_never": lambda: AdagradDecayReference(decay_step=100000),
    "adam_async": AdamAsyncReference,
    "adam_async_rmsprop": lambda: AdamAsyncReference(rmsprop=True),
}


class Model:
    """A table or variable that is trained with fed gradients."""

    def __init__(self, kind, optimizer, dense=False):
        self.touched = v1.placeholder(tf.int64, [None])
        self.gradients = v1.placeholder(tf.float32, [None, DIM])
        step = v1.train.get_or_create_global_step()
        if kind == "table":
            self.variable = sok.EmbeddingVariable("x", DIM, initializer="ones")
            self.rows = tf.nn.embedding_lookup(self.variable, tf.range(ROWS, dtype=tf.int64))
        else:
            self.variable = v1.Variable(tf.ones([ROWS, DIM]), use_resource=kind == "resource", name="x")
            self.rows = tf.identity(self.variable)
        if dense:
            loss = tf.reduce_sum(
                self.variable * tf.math.unsorted_segment_sum(self.gradients, self.touched, ROWS)
            )
        else:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(self.variable, self.touched) * self.gradients)
        self.train = optimizer.minimize(loss, global_step=step, var_list=[self.variable])

    def feed(self, batch):
        return {self.touched: batch[0], self.gradients: batch[1]}


def make_batches(steps=STEPS):
    """Batches with rows that occur in every step, and rows that are absent for long; one batch is empty."""
    rng = np.random.default_rng(4)
    for number in range(steps):
        low = 0 if number % 13 < 3 else 10
        touched = rng.integers(low, ROWS - 1, 0 if number == 7 else 15)
        yield touched, rng.standard_normal([len(touched), DIM]).astype(np.float32)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("kind", ["table", "resource", "reference", "dense", "dense_reference"])
def test_follows_the_definition(kind, name):
    reference = REFERENCES[name]()
    dense = kind.startswith("dense")
    kind = {"dense": "resource", "dense_reference": "reference"}.get(kind, kind)
    with harness.graph_and_session() as session:
        model = Model(kind, reference.optimizer(), dense)
        harness.initialize(session)
        rows = np.ones([ROWS, DIM])
        for number, batch in enumerate(make_batches()):
            session.run(model.train, model.feed(batch))
            reference.step(rows, *batch, number, dense)
            np.testing.assert_allclose(session.run(model.rows), rows, rtol=2e-5, atol=2e-5)
        assert np.abs(rows - 1).max() > 0.1


@pytest.mark.parametrize("name", ["adagrad_decay", "adam_async", "adam_async_rmsprop"])
def test_training_goes_on_from_a_checkpoint_bit_for_bit(name, tmp_path):
    batches = list(make_batches(30))

    def build():
        model = Model("table", REFERENCES[name]().optimizer())
        return model, v1.train.Saver()

    with harness.graph_and_session() as session:
        model, saver = build()
        harness.initialize(session)
        for batch in batches[:17]:
            session.run(model.train, model.feed(batch))
        saver.save(session, str(tmp_path / "model"))
        for batch in batches[17:]:
            session.run(model.train, model.feed(batch))
        expected = session.run(model.rows)
    with harness.graph_and_session() as session:
        model, saver = build()
        saver.restore(session, str(tmp_path / "model"))
        for batch in batches[17:]:
            session.run(model.train, model.feed(batch))
        np.testing.assert_array_equal(session.run(model.rows), expected)


def test_tables_and_ordinary_variables_in_one_step():
    with harness.graph_and_session() as session:
        step = v1.train.get_or_create_global_step()
        tables = [sok.EmbeddingVariable(name, DIM, initializer="ones") for name in ("a", "b")]
        dense = v1.get_variable("dense", initializer=tf.ones([DIM]), use_resource=True)
        rows = [tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64)) for table in tables]
        loss = tf.add_n([tf.reduce_sum(one * dense) for one in rows])
        train = AdagradDecay(0.1, step, accumulator_decay_step=2).minimize(loss, global_step=step)
        harness.initialize(session)
        for _ in range(5):
            session.run([train])
        a, b = session.run(rows)
        np.testing.assert_array_equal(a, b)
        assert np.all(a < 1) and np.all(session.run(dense) < 1)


def test_adam_async_counts_by_variable():
    """A table that is trained less often has taken fewer steps than the others."""
    with harness.graph_and_session() as session:
        tables = {name: sok.EmbeddingVariable(name, 1, initializer="ones") for name in ("often", "rarely")}
        rows = {n: tf.nn.embedding_lookup(t, tf.constant([1], tf.int64)) for n, t in tables.items()}
        optimizer = AdamAsync(0.1)
        trains = {n: optimizer.minimize(tf.reduce_sum(rows[n] ** 2), var_list=[t]) for n, t in tables.items()}
        harness.initialize(session)
        for _ in range(3):
            session.run(trains["often"])
        for step in range(3):
            session.run(trains["rarely"])
            powers = {
                v.name: value
                for v, value in zip_equal(optimizer.variables(), session.run(optimizer.variables()))
            }
            np.testing.assert_allclose(powers["AdamAsync/often/beta1_power:0"], 0.9**4, rtol=1e-6)
            np.testing.assert_allclose(powers["AdamAsync/rarely/beta1_power:0"], 0.9 ** (step + 2), rtol=1e-6)
        often, rarely = (session.run(rows[name]) for name in ("often", "rarely"))
        np.testing.assert_array_equal(often, rarely)


def test_a_global_step_of_32_bits_will_do():
    with harness.graph_and_session() as session:
        step = v1.Variable(0, dtype=tf.int32)
        table = sok.EmbeddingVariable("x", 1, initializer="ones")
        rows = tf.nn.embedding_lookup(table, tf.constant([1], tf.int64))
        train = AdagradDecay(0.1, step, 4.0, 1, 0.5).minimize(tf.reduce_sum(rows), global_step=step)
        harness.initialize(session)
        session.run([train])
        session.run([train])
        # 4 + 1, and then half of it, which is below 4, and 1.
        np.testing.assert_allclose(session.run(rows), [[1 - 0.2 / np.sqrt(5)]], rtol=1e-6)


def test_learning_rates_may_be_tensors_and_functions():
    with harness.graph_and_session() as session:
        step = v1.train.get_or_create_global_step()
        rate = v1.placeholder(tf.float32, [])
        found = []
        for number, make in enumerate(
            [
                lambda: AdagradDecay(rate, step),
                lambda: AdagradDecay(lambda: rate, step),
                lambda: AdamAsync(rate),
                lambda: AdamAsync(lambda: rate),
            ]
        ):
            table = sok.EmbeddingVariable(f"x{number}", 1, initializer="ones")
            rows = tf.nn.embedding_lookup(table, tf.constant([1], tf.int64))
            found.append((make().minimize(tf.reduce_sum(rows)), rows))
        harness.initialize(session)
        session.run([train for train, _ in found], {rate: 0.25})
        adagrad, same, adam, also = session.run([rows for _, rows in found])
        assert adagrad == same < 1 and adam == also < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"global_step": None}, "needs the global step"),
        ({"initial_accumulator_value": 0.0}, "initial_accumulator_value must be above 0, not 0.0"),
        ({"accumulator_decay_step": 0}, "accumulator_decay_step must be above 0, not 0"),
        ({"accumulator_decay_rate": 1.0}, r"in \(0, 1\), not 1.0"),
        ({"accumulator_decay_rate": 0.0}, r"in \(0, 1\), not 0.0"),
    ],
)
def test_bad_arguments(arguments, message):
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        with pytest.raises(ValueError, match=message):
            AdagradDecay(**{"learning_rate": 0.1, "global_step": step, **arguments})
