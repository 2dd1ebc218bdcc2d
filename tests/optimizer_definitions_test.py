# Tags: versions
"""The library's own optimizers follow their definitions, on tables and on ordinary variables.

Each definition is here, row by row in double precision. TensorFlow's and Keras' optimizers need none:
`optimizer_arguments_test` compares what they do to a table with what they do to an ordinary variable.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Callable

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal

pytestmark = pytest.mark.cases_on_gpu(5)
session = harness.session

v1 = tf.compat.v1
AdagradDecay = sok.optimizers.AdagradDecayOptimizer
AdamAsync = sok.optimizers.AdamAsyncOptimizer
AdamW = sok.optimizers.AdamW
AdamWOptimizer = sok.optimizers.AdamWOptimizer
LazyAdam = sok.tf.keras.optimizers.LazyAdamOptimizer
RowWiseAdagrad = sok.optimizers.RowWiseAdagrad

ROWS = 20
DIM = 3
STEPS = 30
BETAS = (0.8, 0.95)
EPSILON = 1e-4


@dataclasses.dataclass
class Now:
    """What a step is given besides gradients."""

    number: int
    rate: float
    weight_decay: float
    dense: bool


def rowwise_adagrad():
    squares = np.full(ROWS, 0.2)

    def step(rows, gradients, now):
        for row, g in gradients.items():
            squares[row] += np.mean(g * g)
            rows[row] -= now.rate * g / (np.sqrt(squares[row]) + EPSILON)

    return step


def lazy_adam(decays, by_row=False):
    m, v = np.zeros([ROWS, DIM]), np.zeros([ROWS, DIM])

    def step(rows, gradients, now):
        powers = np.power(BETAS, now.number + 1)
        alpha = now.rate * np.sqrt(1 - powers[1]) / (1 - powers[0])
        for row, g in gradients.items():
            m[row] += (1 - BETAS[0]) * (g - m[row])
            v[row] += (1 - BETAS[1]) * ((np.mean(g * g) if by_row else g * g) - v[row])
            rows[row] *= 1 - now.weight_decay * decays
            rows[row] -= alpha * m[row] / (np.sqrt(v[row]) + EPSILON)

    return step


def adagrad_decay(decay_step):
    accumulator, decays = np.full([ROWS, DIM], 0.1), np.zeros(ROWS, int)

    def step(rows, gradients, now):
        for row, g in gradients.items():
            if (now.number + 1) // decay_step > decays[row]:
                accumulator[row] = np.maximum(accumulator[row] * 0.7, 0.1)
                decays[row] += 1
            accumulator[row] += g * g
            rows[row] -= now.rate * g / np.sqrt(accumulator[row])

    return step


def adam_async(rmsprop):
    m, v, powers = np.zeros([ROWS, DIM]), np.zeros([ROWS, DIM]), np.array(BETAS)

    def step(rows, gradients, now):
        alpha = now.rate * np.sqrt(1 - powers[1]) / (1 - powers[0])
        for row, g in gradients.items():
            v[row] = BETAS[1] * v[row] + (1 - BETAS[1]) * g * g
            if rmsprop and not now.dense:
                m[row] = BETAS[0] * m[row] + now.rate * g / np.sqrt(v[row] + EPSILON)
                rows[row] -= m[row]
            else:
                m[row] = BETAS[0] * m[row] + (1 - BETAS[0]) * g
                rows[row] -= alpha * m[row] / (np.sqrt(v[row]) + EPSILON)
        if now.dense or (gradients and not rmsprop):
            powers[:] *= BETAS

    return step


def _halving(step):
    return 0.1 * tf.pow(0.5, tf.cast(step, tf.float32) / 10.0)


def _keras_halving():
    return tf.keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)


@dataclasses.dataclass
class Case:
    """An optimizer, made of a learning rate and a weight decay (tensors) and the global step; its definition.

    Attributes:
      rate, weight_decay: what the step of a number is fed.
    """

    make: Callable
    definition: Callable
    rate: Callable = lambda number: 0.02 * (1 + number % 3)
    weight_decay: Callable = lambda number: 0.1 * (number % 4)
    step_dtype: tf.DType = tf.int64


_adamw = functools.partial(Case, definition=lambda: lazy_adam(decays=True))
CASES = {
    "rowwise_adagrad": Case(lambda lr, wd, step: RowWiseAdagrad(lr, 0.2, EPSILON), rowwise_adagrad),
    "lazy_adam": Case(lambda lr, wd, step: LazyAdam(lr, *BETAS, EPSILON), lambda: lazy_adam(decays=False)),
    "lazy_adam_by_row": Case(
        lambda lr, wd, step: LazyAdam(lr, *BETAS, EPSILON, second_moment="row"),
        lambda: lazy_adam(decays=False, by_row=True),
    ),
    "adamw_by_row": Case(
        lambda lr, wd, step: AdamW(wd, lr, *BETAS, EPSILON, second_moment="row"),
        lambda: lazy_adam(decays=True, by_row=True),
    ),
    "adamw_optimizer": _adamw(lambda lr, wd, step: AdamWOptimizer(wd, lr, *BETAS, EPSILON)),
    "adamw": _adamw(
        lambda lr, wd, step: AdamW(wd, lr, beta_1=BETAS[0], beta_2=tf.constant(BETAS[1]), epsilon=EPSILON)
    ),
    "adamw_functions": _adamw(lambda lr, wd, step: AdamW(lambda: wd, lambda: lr, *BETAS, EPSILON)),
    # They are given the optimizer's own count of steps.
    "adamw_schedules": _adamw(
        lambda lr, wd, step: AdamW(lambda step: 0.5 * _halving(step), _keras_halving(), *BETAS, EPSILON),
        rate=lambda number: 0.1 * 0.5 ** (number / 10),
        weight_decay=lambda number: 0.05 * 0.5 ** (number / 10),
    ),
    "adagrad_decay": Case(
        lambda lr, wd, step: AdagradDecay(lr, step, 0.1, 5, 0.7), lambda: adagrad_decay(decay_step=5)
    ),
    "adagrad_decay_each_step": Case(
        lambda lr, wd, step: AdagradDecay(lambda: lr, step, 0.1, 1, 0.7),
        lambda: adagrad_decay(decay_step=1),
        step_dtype=tf.int32,
    ),
    "adagrad_decay_never": Case(
        lambda lr, wd, step: AdagradDecay(lr, step, 0.1, 100000, 0.7), lambda: adagrad_decay(100000)
    ),
    "adam_async": Case(
        lambda lr, wd, step: AdamAsync(lr, *BETAS, EPSILON), lambda: adam_async(rmsprop=False)
    ),
    "adam_async_rmsprop": Case(
        lambda lr, wd, step: AdamAsync(lambda: lr, *BETAS, EPSILON, apply_sparse_rmsprop=True),
        lambda: adam_async(rmsprop=True),
    ),
}


class Model:
    """A table or variable that is trained with fed gradients."""

    def __init__(self, kind, case, dense):
        self.touched = v1.placeholder(tf.int64, [None])
        self.gradients = v1.placeholder(tf.float32, [None, DIM])
        self.rate, self.weight_decay = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
        if kind == "table":
            variable = sok.EmbeddingVariable("x", DIM, initializer="ones")
            self.rows = tf.nn.embedding_lookup(variable, tf.range(ROWS, dtype=tf.int64))
        else:
            variable = v1.Variable(tf.ones([ROWS, DIM]), use_resource=kind == "resource", name="x")
            self.rows = tf.identity(variable)
        if dense:
            loss = variable * tf.math.unsorted_segment_sum(self.gradients, self.touched, ROWS)
        else:
            loss = tf.nn.embedding_lookup(variable, self.touched) * self.gradients
        step = v1.Variable(0, dtype=case.step_dtype, trainable=False, name="step")
        optimizer = case.make(self.rate, self.weight_decay, step)
        self.train = optimizer.minimize(tf.reduce_sum(loss), global_step=step, var_list=[variable])
        self.saver = v1.train.Saver()

    def step(self, session, touched, gradients, now):
        fed = {self.touched: touched, self.gradients: gradients}
        session.run(self.train, {**fed, self.rate: now.rate, self.weight_decay: now.weight_decay})


def _batches():
    """Rows that occur in every step, several times, and others that are absent for long; one has no rows."""
    rng = np.random.default_rng(4)
    for number in range(STEPS):
        touched = rng.integers(0 if number % 13 < 3 else 10, ROWS - 1, 0 if number == 7 else 15)
        yield touched, rng.standard_normal([len(touched), DIM]).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["table", "resource", "reference", "dense resource", "dense reference"])
def test_follows_the_definition(kind, name, tmp_path):
    """Also after a checkpoint; rows without a gradient keep their bits."""
    case, dense = CASES[name], kind.startswith("dense")
    definition, rows = case.definition(), np.ones([ROWS, DIM])
    with harness.graph_and_session() as session, v1.Session(config=harness.session_config()) as restored:
        model = Model(kind.split()[-1], case, dense)
        harness.initialize(session)
        before = session.run(model.rows)
        for number, (touched, gradients) in enumerate(_batches()):
            now = Now(number, case.rate(number), case.weight_decay(number), dense)
            model.step(session, touched, gradients, now)
            found = session.run(model.rows)
            moved = range(ROWS) if dense else np.unique(touched)
            definition(rows, {row: gradients[touched == row].sum(axis=0) for row in moved}, now)
            np.testing.assert_allclose(found, rows, rtol=2e-5, atol=2e-5)
            np.testing.assert_array_equal(np.delete(found, moved, 0), np.delete(before, moved, 0))
            before = found
            if number == 16:
                model.saver.save(session, str(tmp_path / "model"))
                session = restored
                model.saver.restore(session, str(tmp_path / "model"))
        assert np.abs(rows - 1).max() > 0.1


def test_adam_async_counts_by_variable(session):
    """A table that is trained less often has taken fewer steps than the others."""
    tables = {name: sok.EmbeddingVariable(name, 1, initializer="ones") for name in ("often", "rarely")}
    rows = {n: tf.nn.embedding_lookup(t, tf.constant([1], tf.int64)) for n, t in tables.items()}
    optimizer = AdamAsync(0.1)
    trains = {n: optimizer.minimize(tf.reduce_sum(rows[n] ** 2), var_list=[t]) for n, t in tables.items()}
    harness.initialize(session)
    for _ in range(3):
        session.run(trains["often"])
    powers = {v.name: v for v in optimizer.variables()}
    powers = [powers[f"AdamAsync/{name}/beta1_power:0"] for name in tables]
    for step in range(3):
        session.run(trains["rarely"])
        np.testing.assert_allclose(session.run(powers), [0.9**4, 0.9 ** (step + 2)], rtol=1e-6)
    np.testing.assert_array_equal(*session.run(list(rows.values())))


@pytest.mark.parametrize("shape", [(), (3,), (3, 2, 4)])
def test_dense_gradients_of_any_rank_for_rowwise_adagrad(session, shape):
    start = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    variable = tf.Variable(start)
    step = RowWiseAdagrad(0.1, 0.5, 0.0).minimize(tf.reduce_sum(variable**2), var_list=[variable])
    harness.initialize(session)
    session.run(step)
    gradient = 2 * start
    squares = 0.5 + np.mean(gradient**2, axis=tuple(range(1, len(shape))), keepdims=True)
    np.testing.assert_allclose(session.run(variable), start - 0.1 * gradient / np.sqrt(squares), rtol=1e-5)


def test_other_kinds_of_second_moments_are_refused():
    for make in (
        LazyAdam,
        lambda **kwargs: AdamWOptimizer(0.01, **kwargs),
        lambda **kwargs: AdamW(0.01, **kwargs),
    ):
        with pytest.raises(ValueError, match="second_moment must be 'element' or 'row', not 'column'"):
            make(second_moment="column")


@pytest.mark.parametrize(
    ("make", "values", "name"),
    [
        (LazyAdam, (0.001, 0.9, 0.999, 1e-8), "LazyAdam"),
        (lambda: LazyAdam(0.1, 0.2, 0.3, 0.4, True, "Mine"), (0.1, 0.2, 0.3, 0.4), "Mine"),
        (lambda: AdamWOptimizer(0.01), (0.001, 0.9, 0.999, 1e-8), "AdamW"),
        (lambda: AdamW(weight_decay=0.01), (None, 0.9, 0.999, 1e-7), "AdamW"),
    ],
)
def test_arguments_and_their_defaults(make, values, name):
    optimizer = make()
    found = (optimizer._lr, optimizer._beta1, optimizer._beta2, optimizer._epsilon)
    assert all(want is None or one == want for one, want in zip_equal(found, values))
    assert optimizer.get_name() == name and optimizer._use_locking == (name == "Mine")
