"""sok.Saver.load_embedding_values: rows of a table set from tensors."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal

session = harness.session

DIM = 3


def make_table(session, keys, **kwargs):
    """A table with random rows under `keys`."""
    table = sok.EmbeddingVariable(name="table", dim=DIM, initializer="random_normal", **kwargs)
    session.run(table.initializer)
    session.run(tf.nn.embedding_lookup(table, keys))
    return table


def rows_of(session, table):
    keys, rows = harness.table_contents(session, table)
    return {int(key): row.tolist() for key, row in zip_equal(keys, rows)}


def test_load_embedding_values_gives_key_i_row_i():
    values = np.arange(12, dtype=np.float32).reshape(4, DIM)
    with harness.graph_and_session() as session:
        table = make_table(session, [2, 50])
        other = rows_of(session, table)[50]
        load = sok.Saver().load_embedding_values(table, values)
        assert session.run(load) == b"OK"
        want = {**{i: row.tolist() for i, row in enumerate(values)}, 50: other}
        assert rows_of(session, table) == want


@pytest.mark.parametrize("container", [list, tuple])
def test_a_list_of_tensors_is_stacked(session, container):
    table = make_table(session, [50])
    parts = container([np.full([2, DIM], 1.0), tf.fill([1, DIM], 2.0), np.zeros([0, DIM])])
    session.run(sok.Saver().load_embedding_values(table, parts))
    rows = rows_of(session, table)
    assert [rows[i][0] for i in range(3)] == [1.0, 1.0, 2.0] and len(rows) == 4


@pytest.mark.parametrize(
    "values", [np.zeros([2, DIM + 1]), np.zeros([DIM]), np.zeros([1, 1, DIM]), [], "text"]
)
def test_values_of_wrong_shape_are_refused(session, values):
    table = make_table(session, [1])
    with pytest.raises((TypeError, ValueError)):
        sok.Saver().load_embedding_values(table, values)


def test_values_of_wrong_shape_that_is_known_late(session):
    table = make_table(session, [1])
    want = rows_of(session, table)
    values = tf.compat.v1.placeholder(tf.float32)
    load = sok.Saver().load_embedding_values(table, values)
    for shape in ([2, DIM + 1], [DIM], [1, 1, DIM]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="table"):
            session.run(load, {values: np.zeros(shape)})
    assert rows_of(session, table) == want


def test_more_values_than_the_capacity(session):
    table = make_table(session, [5], capacity=2)
    want = rows_of(session, table)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="table.*2"):
        session.run(sok.Saver().load_embedding_values(table, np.zeros([3, DIM], np.float32)))
    assert rows_of(session, table) == want
