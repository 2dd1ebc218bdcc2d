# Tags: versions
"""sok.Saver: raw files of keys and rows, and values that are loaded."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

DIM = 3


def make_table(session, keys, name="table", **kwargs):
    """A table with random rows under `keys`."""
    table = sok.EmbeddingVariable(name=name, dim=DIM, initializer="random_normal", **kwargs)
    session.run(table.initializer)
    session.run(tf.nn.embedding_lookup(table, tf.constant(keys, table.key_dtype)))
    return table


def rows_of(session, table):
    keys, rows = harness.table_contents(session, table)
    return {int(key): row.tolist() for key, row in zip_equal(keys, rows)}


def dump(session, table, directory):
    assert session.run(sok.Saver().dump_to_file(table, str(directory))) == b"OK"


def restore(session, table, directory):
    assert session.run(sok.Saver().restore_from_file(table, str(directory))) == b"OK"


def test_restoring_replaces_what_was_there(session, tmp_path):
    table = make_table(session, [1, 2, 3])
    want = rows_of(session, table)
    dump(session, table, tmp_path)
    session.run(tf.nn.embedding_lookup(table, tf.constant([4, 5], tf.int64)))
    restore(session, table, tmp_path)
    assert rows_of(session, table) == want


def test_a_table_can_be_trained_after_a_restore(session, tmp_path):
    table = make_table(session, [1, 2])
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1]))
    step = tf.compat.v1.train.MomentumOptimizer(1.0, 0.9).minimize(loss)
    session.run(step)
    dump(session, table, tmp_path)
    before = rows_of(session, table)
    restore(session, table, tmp_path)
    session.run(step)  # the first step of a new optimizer, without momentum
    np.testing.assert_allclose(rows_of(session, table)[1], np.array(before[1]) - 1, rtol=1e-5, atol=1e-6)


def test_without_hashing(session, tmp_path):
    table = sok.EmbeddingVariable(name="table", dim=DIM, capacity=6, use_hashtable=False)
    harness.initialize(session)
    want = session.run(table.read_value())
    dump(session, table, tmp_path)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "table_keys.file", "<i8"), np.arange(6))
    step = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(table.read_value()))
    session.run(step)
    assert not np.any(session.run(table.read_value()) == want)
    restore(session, table, tmp_path)
    np.testing.assert_array_equal(session.run(table.read_value()), want)


def test_scopes_are_directories_and_names_are_unique(session, tmp_path):
    directory = tmp_path / "made" / "when" / "missing"
    with tf.name_scope("user"):
        first = make_table(session, [1])
        second = make_table(session, [2])
    assert first.m_var_name != second.m_var_name
    for table in (first, second):
        dump(session, table, directory)
        assert (directory / f"{table.m_var_name}_keys.file").exists()
        assert (directory / f"{table.m_var_name}_values.file").exists()
    restore(session, second, directory)
    assert list(rows_of(session, second)) == [2]


def test_the_directory_may_be_a_tensor(tmp_path):
    with harness.graph_and_session() as session:
        table = make_table(session, [1])
        directory = tf.compat.v1.placeholder(tf.string, [])
        status = sok.Saver().dump_to_file(table, directory)
        for name in ("first", "second"):
            assert session.run(status, {directory: str(tmp_path / name)}) == b"OK"
    assert sorted(os.listdir(tmp_path)) == ["first", "second"]


# //cc/checkpoint:raw_files_test has more.
DAMAGES = {
    "a row missing": ("table_values.file", lambda content: content[: -4 * DIM]),
    "a key twice": ("table_keys.file", lambda content: content[:8] * 3),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused_by_name(session, tmp_path, damage):
    name, change = DAMAGES[damage]
    table = make_table(session, [1, 2, 3])
    dump(session, table, tmp_path)
    session.run(tf.nn.embedding_lookup(table, [9]))
    want = rows_of(session, table)
    (tmp_path / name).write_bytes(change((tmp_path / name).read_bytes()))
    with pytest.raises(tf.errors.DataLossError, match=name):
        restore(session, table, tmp_path)
    assert rows_of(session, table) == want


def test_a_directory_that_cannot_be_made_is_named(session, tmp_path):
    (tmp_path / "occupied").write_text("a file")
    table = make_table(session, [1])
    with pytest.raises(tf.errors.OpError, match="occupied"):
        dump(session, table, tmp_path / "occupied")
    with pytest.raises(tf.errors.InvalidArgumentError, match="directory"):
        dump(session, table, "")


def test_more_rows_than_the_capacity(tmp_path):
    with harness.graph_and_session() as session:
        dump(session, make_table(session, [1, 2, 3]), tmp_path)
    with harness.graph_and_session() as session:
        table = make_table(session, [7], capacity=2)
        want = rows_of(session, table)
        with pytest.raises(tf.errors.ResourceExhaustedError, match="table.*2"):
            restore(session, table, tmp_path)
        assert rows_of(session, table) == want


def test_keys_out_of_range_without_hashing(tmp_path):
    with harness.graph_and_session() as session:
        dump(session, make_table(session, [1, 99]), tmp_path)
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name="table", dim=DIM, capacity=6, use_hashtable=False)
        harness.initialize(session)
        want = session.run(table.read_value())
        with pytest.raises(tf.errors.InvalidArgumentError, match="table.*99"):
            restore(session, table, tmp_path)
        np.testing.assert_array_equal(session.run(table.read_value()), want)


@pytest.mark.parametrize("not_a_table", [None, "table", 3])
def test_only_embedding_variables_are_saved(not_a_table):
    with harness.graph_and_session():
        saver = sok.Saver()
        for attempt in (
            lambda: saver.dump_to_file(not_a_table, "unused"),
            lambda: saver.restore_from_file(not_a_table, "unused"),
            lambda: saver.load_embedding_values(not_a_table, np.zeros([1, DIM])),
        ):
            with pytest.raises(TypeError, match="EmbeddingVariable"):
                attempt()


def test_a_plain_variable_is_refused():
    with harness.graph_and_session(), pytest.raises(TypeError, match="EmbeddingVariable"):
        sok.Saver().dump_to_file(tf.Variable([[1.0]]), "unused")


def test_load_embedding_values_gives_key_i_row_i(session):
    values = np.arange(12, dtype=np.float32).reshape(4, DIM)
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
