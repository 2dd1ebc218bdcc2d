"""RowWiseAdagrad keeps one accumulator per row, on tables and on ordinary variables."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import optimizer_parity
import sparse_operation_kit as sok

RowWiseAdagrad = sok.optimizers.RowWiseAdagrad


def _reference_step(rows, accumulator, positions, gradients, rate, epsilon):
    for position in np.unique(positions):
        g = gradients[positions == position].sum(axis=0)
        accumulator[position] += np.mean(g * g)
        rows[position] -= rate * g / (np.sqrt(accumulator[position]) + epsilon)


@pytest.mark.parametrize("kind", ["table", "resource", "reference"])
def test_follows_the_definition(kind):
    with harness.graph_and_session() as session:
        twins = optimizer_parity.make_twins()
        gradients = tf.compat.v1.placeholder(tf.float32, [None, optimizer_parity.DIM])
        shape = [optimizer_parity.ROWS, optimizer_parity.DIM]
        variable = twins.table
        if kind != "table":
            variable = tf.compat.v1.Variable(tf.ones(shape), use_resource=kind == "resource")
        ids = tf.gather(twins.keys, twins.positions) if kind == "table" else twins.positions
        loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, ids) * gradients)
        optimizer = RowWiseAdagrad(twins.learning_rate, initial_accumulator_value=0.2, epsilon=1e-3)
        step = optimizer.minimize(loss, var_list=[variable])
        twins.start(session)
        read = twins.table_rows if kind == "table" else variable
        rows = session.run(read).astype(np.float64)
        accumulator = np.full(optimizer_parity.ROWS, 0.2)
        rng = np.random.default_rng(3)
        for number, (positions, _) in enumerate(optimizer_parity.batches(optimizer_parity.STEPS)):
            values = rng.standard_normal([positions.size, optimizer_parity.DIM]).astype(np.float32)
            rate = 0.1 / (1 + number % 3)
            session.run(step, {twins.positions: positions, gradients: values, twins.learning_rate: rate})
            _reference_step(rows, accumulator, positions, values, rate, 1e-3)
        assert optimizer_parity.deviation(session.run(read), rows) < 5e-6


def test_table_and_variable_agree():
    assert optimizer_parity.worst_deviation(lambda lr: RowWiseAdagrad(lr)) < 5e-6


@pytest.mark.parametrize("shape", [(), (3,), (3, 2), (3, 2, 4)])
def test_dense_gradients_of_any_rank(shape):
    with harness.graph_and_session() as session:
        start = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        variable = tf.Variable(start)
        step = RowWiseAdagrad(0.1, 0.5, 0.0).minimize(tf.reduce_sum(variable**2), var_list=[variable])
        harness.initialize(session)
        session.run(step)
        gradient = 2 * start
        squares = 0.5 + (
            np.mean(gradient**2, axis=tuple(range(1, len(shape))), keepdims=True) if shape else gradient**2
        )
        np.testing.assert_allclose(
            session.run(variable), start - 0.1 * gradient / np.sqrt(squares), rtol=1e-5
        )


def test_negative_accumulator_is_refused():
    with pytest.raises(ValueError, match="initial_accumulator_value must be at least 0, not -1"):
        RowWiseAdagrad(0.1, initial_accumulator_value=-1)
