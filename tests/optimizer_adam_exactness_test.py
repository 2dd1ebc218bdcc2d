"""Adam on a table moves every row on every step, exactly as TensorFlow's does on a dense variable."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok
from device_of_tests import sized
from same_length import zip_equal
from sparse_operation_kit import compat

pytestmark = pytest.mark.cases_on_gpu(1)

# On a GPU, each step moves each row, and long gaps are nothing else than short ones.
STEPS = sized(on_cpu=215, on_gpu=45)
LATE = STEPS - 17
# When rows are in the batch: always, with gaps of 1 and 10 steps, twice with a long gap, once, never.
TOUCHED = {
    0: lambda step: True,
    1: lambda step: step % 2 == 0,
    2: lambda step: step % 11 == 0,
    3: lambda step: step in (7, LATE),
    4: lambda step: step == 3,
    5: lambda step: False,
}


def _adam(lr, beta1=0.9, beta2=0.999, epsilon=1e-8):
    return tf.compat.v1.train.AdamOptimizer(lr, beta1=beta1, beta2=beta2, epsilon=epsilon)


ARGUMENTS = {
    "default": {},
    "epsilon_1e-3": {"epsilon": 1e-3},
    "epsilon_0.1": {"epsilon": 0.1},
    "short_memory": {"beta1": 0.5, "beta2": 0.9},
    "long_memory": {"beta1": 0.99, "beta2": 0.9999},
}


def _deviation(make_optimizer, make_reference=_adam, reads=()):
    """The largest relative deviation of any row at any read, and at the end."""
    rng = np.random.default_rng(5)
    fed = []
    for number in range(STEPS):
        touched = [row for row, when in TOUCHED.items() if when(number)]
        positions = np.array(touched * 2, np.int64)
        labels = rng.standard_normal(positions.size).astype(np.float32)
        fed.append((positions, labels, 0.02 * (1.0 + 0.9 * np.cos(0.3 * number))))
    return optimizer_parity.worst_deviation(make_optimizer, make_reference, fed, reads, dense=False)


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_untouched_rows_move_as_tensorflows_do(arguments):
    def make(lr):
        return _adam(lr, **ARGUMENTS[arguments])

    assert _deviation(make, make) < 5e-6


@pytest.mark.parametrize("reads", [(0, 1, 2, 20, 21, STEPS // 2, LATE - 1), range(STEPS)])
def test_reads_between_updates_see_current_rows_and_change_nothing(reads):
    assert _deviation(_adam, reads=reads) < 5e-6


def test_keras_adam_moves_untouched_rows():
    keras_adam = compat.legacy_keras_optimizers()[0][1].Adam
    assert _deviation(lambda lr: keras_adam(lr), lambda lr: keras_adam(lr), (10, STEPS // 2)) < 5e-6


def test_steps_of_another_table_do_not_age_a_table():
    # As with tf.Variables: a variable without a gradient in a step does not change.
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(name=name, dim=3) for name in "ab"]
        plains = [tf.Variable(np.zeros([4, 3], np.float32)) for _ in "ab"]
        keys = np.arange(4)
        rows = [tf.nn.embedding_lookup(table, keys) for table in tables]
        optimizers = [_adam(0.1), _adam(0.1)]
        steps = []
        for table, plain in zip_equal(tables, plains):
            losses = [
                tf.reduce_sum(tf.nn.embedding_lookup(variable, keys[:2]) ** 2) for variable in (table, plain)
            ]
            steps.append(
                [
                    optimizer.minimize(loss, var_list=[variable])
                    for optimizer, loss, variable in zip_equal(optimizers, losses, (table, plain))
                ]
            )
        harness.initialize(session)
        for plain, row in zip_equal(plains, rows):
            plain.load(session.run(row), session)
        for which in (0, 1, 1, 1, 0, 1, 0, 0):
            session.run(steps[which])
        for plain, row in zip_equal(plains, rows):
            np.testing.assert_allclose(*session.run([row, plain]), rtol=1e-5, atol=1e-6)
