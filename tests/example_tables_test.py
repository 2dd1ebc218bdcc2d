"""Both kinds of tables give the example's models the same shapes and the same pooling."""

import numpy as np
import pytest
import tensorflow as tf

import forked
from ctr.tables import TensorFlowTables
from example_support import example_environment

# Runs in its own process, because SOK is initialized once per process, and other tests need other arguments.
_SOK_PROGRAM = """
import numpy as np
import tensorflow as tf
from ctr.tables import SokTables

tf.compat.v1.disable_eager_execution()
tables = SokTables(global_batch_size=2, seed=3)
ids = tf.constant([[5, -7], [5, 2**62]], tf.int64)
training = tf.compat.v1.placeholder(tf.bool, [])
one_hot = tables.one_hot("one", ids, 3, training)
bags = tf.constant([[[5, 6, 7]], [[5, 0, 0]], [[1, 2, 3]]], tf.int64)
present = tf.constant([[[True, True, False]], [[True, False, False]], [[False, False, False]]])
multi_hot = tables.multi_hot("many", bags, present, 3, training)
dense = tf.compat.v1.get_variable("dense", [2], use_resource=True)
loss = tf.reduce_sum(one_hot) * dense[0] + tf.reduce_sum(multi_hot) * dense[1]
step = tables.train(loss, "lazy_adam", 0.125)
initialize = tf.compat.v1.global_variables_initializer()
with tf.compat.v1.Session() as session:
    tables.prepare(session)
    session.run(initialize)
    rows, pooled = session.run([one_hot, multi_hot], {training: False})
assert rows.shape == (2, 2, 3), rows.shape
assert (rows[0, 0] == rows[1, 0]).all() and (rows[0, 1] != rows[1, 1]).any(), rows
assert np.abs(rows).max() <= 0.05 and np.abs(rows).min() > 0, rows
assert pooled.shape == (3, 1, 3), pooled.shape
assert (pooled[2] == 0).all() and (pooled[0] != pooled[1]).any(), pooled
assert np.abs(pooled[1]).min() > 0, pooled
with tf.compat.v1.Session() as session:
    tables.prepare(session)
    session.run(initialize)
    session.run(tables.broadcast())
    before = session.run(dense)
    session.run(step, {training: True})
    moved = session.run(dense) - before
    later = session.run(one_hot, {training: False})
# Adam's first step is the rate, wherever there is a gradient.
assert np.allclose(np.abs(moved), 0.125, rtol=1e-3), moved
assert np.allclose(np.abs(later - rows), 0.125, rtol=1e-3), later - rows
"""


def test_sok_tables_serve_any_id():
    result = forked.run_code(_SOK_PROGRAM, env=example_environment())
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        yield session


def test_tensorflow_tables_take_ids_modulo_their_rows(session):
    ids = tf.constant([[3, -1], [13, 2**62]], tf.int64)
    rows = TensorFlowTables(10).one_hot("one", ids, 2, tf.constant(True))
    session.run(tf.compat.v1.global_variables_initializer())
    table = session.run(tf.compat.v1.trainable_variables()[0])
    assert table.shape == (10, 2) and np.abs(table).max() <= 0.05
    assert (session.run(rows) == table[np.array([[3, 9], [3, 2**62 % 10]])]).all()


def test_tensorflow_tables_average_what_is_present(session):
    ids = tf.constant([[[1, 2, 3], [14, 5, 6]], [[7, 8, 9], [-1, 0, 0]]], tf.int64)
    present = tf.constant([[[1, 0, 1], [1, 1, 1]], [[0, 0, 0], [1, 0, 0]]]) > 0
    bags = TensorFlowTables(10).multi_hot("many", ids, present, 2, tf.constant(True))
    session.run(tf.compat.v1.global_variables_initializer())
    table = session.run(tf.compat.v1.trainable_variables()[0])
    expected = [[table[[1, 3]].mean(0), table[[4, 5, 6]].mean(0)], [np.zeros(2), table[9]]]
    assert session.run(bags) == pytest.approx(np.array(expected), abs=1e-6)


def test_tensorflow_tables_train_with_the_dense_weights(session):
    tables = TensorFlowTables(10)
    rows = tables.one_hot("one", tf.constant([[3, 3]], tf.int64), 2, tf.constant(True))
    dense = tf.compat.v1.get_variable("dense", [2], use_resource=True)
    step = tables.train(tf.reduce_sum(rows) + 5 * tf.reduce_sum(dense), "sgd", 0.5)
    session.run(tf.compat.v1.global_variables_initializer())
    before = session.run([rows, dense])
    session.run(tables.broadcast())
    session.run(step)
    after = session.run([rows, dense])
    # The row is looked up twice.
    assert after[0] - before[0] == pytest.approx(np.full([1, 2, 2], -1.0))
    assert after[1] - before[1] == pytest.approx(np.full([2], -2.5))
