"""LazyAdamOptimizer moves only the touched rows, on tables and on ordinary variables."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok
from same_length import zip_equal

LazyAdam = sok.tf.keras.optimizers.LazyAdamOptimizer


class Reference:
    """Adam on the rows of a batch, in float64."""

    def __init__(self, rows, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.rows = rows.astype(np.float64)
        self.m = np.zeros_like(self.rows)
        self.v = np.zeros_like(self.rows)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.step = 0

    def apply(self, positions, gradients, rate):
        self.step += 1
        alpha = rate * np.sqrt(1 - self.beta2**self.step) / (1 - self.beta1**self.step)
        for position in np.unique(positions):
            g = gradients[positions == position].sum(axis=0)
            self.m[position] += (1 - self.beta1) * (g - self.m[position])
            self.v[position] += (1 - self.beta2) * (g * g - self.v[position])
            self.rows[position] -= alpha * self.m[position] / (np.sqrt(self.v[position]) + self.epsilon)


@pytest.mark.parametrize("kind", ["table", "resource", "reference"])
def test_follows_the_definition(kind):
    with harness.graph_and_session() as session:
        twins = optimizer_parity.make_twins()
        gradients = tf.compat.v1.placeholder(tf.float32, [None, optimizer_parity.DIM])
        variable = twins.table if kind == "table" else _plain(kind)
        ids = tf.gather(twins.keys, twins.positions) if kind == "table" else twins.positions
        loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, ids) * gradients)
        step = LazyAdam(twins.learning_rate).minimize(loss, var_list=[variable])
        twins.start(session)
        rows = twins.table_rows if kind == "table" else variable
        reference = Reference(session.run(rows))
        rng = np.random.default_rng(3)
        for number, (positions, _) in enumerate(optimizer_parity.batches(60)):
            values = rng.standard_normal([positions.size, optimizer_parity.DIM]).astype(np.float32)
            rate = 0.01 * (1 + number % 5)
            session.run(step, {twins.positions: positions, gradients: values, twins.learning_rate: rate})
            reference.apply(positions, values, rate)
        assert optimizer_parity.deviation(session.run(rows), reference.rows) < 5e-6


def _plain(kind):
    initial = np.random.default_rng(2).standard_normal([optimizer_parity.ROWS, optimizer_parity.DIM])
    return tf.compat.v1.Variable(initial.astype(np.float32), use_resource=kind == "resource", name="plain")


def test_table_and_variable_agree():
    assert (
        optimizer_parity.worst_deviation(lambda lr: LazyAdam(lr, beta1=0.8, beta2=0.99, epsilon=1e-4)) < 5e-6
    )


def test_dense_gradients_are_adams():
    with harness.graph_and_session() as session:
        variables = [tf.Variable([[1.0, -2.0], [0.5, 0.1]]) for _ in range(2)]
        optimizers = [LazyAdam(0.1), tf.compat.v1.train.AdamOptimizer(0.1)]
        steps = [
            optimizer.minimize(tf.reduce_sum(variable**4), var_list=[variable])
            for optimizer, variable in zip_equal(optimizers, variables)
        ]
        harness.initialize(session)
        for _ in range(20):
            session.run(steps)
        lazy, adam = session.run(variables)
        np.testing.assert_array_equal(lazy, adam)


def test_arguments_and_their_defaults():
    optimizer = LazyAdam()
    assert (optimizer._lr, optimizer._beta1, optimizer._beta2, optimizer._epsilon) == (
        0.001,
        0.9,
        0.999,
        1e-8,
    )
    assert optimizer.get_name() == "LazyAdam"
    positional = LazyAdam(0.1, 0.2, 0.3, 0.4, True, "Mine")
    assert (positional._lr, positional._beta1, positional._beta2, positional._epsilon) == (0.1, 0.2, 0.3, 0.4)
    assert positional._use_locking and positional.get_name() == "Mine"
