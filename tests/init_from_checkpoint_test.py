"""init_from_checkpoint and load_embedding_values fill tables with the rows of others."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal

session = harness.session

train = tf.compat.v1.train
KEYS = np.arange(-5, 15)


def _model(names, optimizer):
    tables = {name: sok.EmbeddingVariable(name=name, dim=3) for name in names}
    losses = [tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, KEYS))) for table in tables.values()]
    return tables, optimizer.minimize(tf.add_n(losses), var_list=list(tables.values()))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(prefix, the arrays of the tables) of a checkpoint."""
    folder = tmp_path_factory.mktemp("saved")
    with harness.graph_and_session() as session:
        _, step = _model(["old/user", "old/item", "other"], train.AdagradOptimizer(0.1))
        harness.initialize(session)
        for _ in range(3):
            session.run(step)
        prefix = train.Saver().save(session, str(folder / "model"), global_step=3)
    return prefix, harness.saved_tables(prefix)


def _contents(session, table):
    keys, rows = harness.table_contents(session, table)
    order = np.argsort(keys)
    return keys[order], rows[order]


def _assert_loaded(session, table, arrays):
    keys, rows = _contents(session, table)
    np.testing.assert_array_equal(keys, arrays["keys"])
    np.testing.assert_array_equal(rows, arrays["values"])


@pytest.mark.parametrize("by", ["variable", "name"])
def test_a_table_under_another_name(saved, by):
    prefix, arrays = saved
    with harness.graph_and_session() as session:
        tables, step = _model(["mine", "untouched"], train.MomentumOptimizer(0.1, 0.9))
        sok.init_from_checkpoint(prefix, {"old/user": tables["mine"] if by == "variable" else "mine"})
        harness.initialize(session)
        _assert_loaded(session, tables["mine"], arrays["old/user"])
        assert session.run(tables["untouched"].size()) == 0
        session.run(step)  # of another optimizer
        # The initializer loads the table again.
        harness.initialize(session)
        _assert_loaded(session, tables["mine"], arrays["old/user"])


@pytest.mark.parametrize("optimizer_state", [False, True])
def test_slots_come_only_where_they_are_asked_for(saved, tmp_path, optimizer_state):
    prefix, arrays = saved
    with harness.graph_and_session() as session:
        _, step = _model(["mine"], train.AdagradOptimizer(0.1))
        sok.init_from_checkpoint(prefix, {"other": "mine"}, optimizer_state=optimizer_state)
        saver = train.Saver()
        harness.initialize(session)
        found = harness.saved_tables(saver.save(session, str(tmp_path / "model")))["mine"]
        assert ("slot-accumulator" in found) == optimizer_state
        for name, array in found.items():
            np.testing.assert_array_equal(array, arrays["other"][name])
        session.run(step)


def test_a_saver_restores_over_it(saved):
    prefix, arrays = saved
    with harness.graph_and_session() as session:
        tables, _ = _model(["other"], train.AdagradOptimizer(0.1))
        sok.init_from_checkpoint(prefix, {"old/user": "other"})
        train.Saver().restore(session, prefix)
        _assert_loaded(session, tables["other"], arrays["other"])


MISTAKES = {
    "no such table": ({"nobody": "mine"}, "'nobody'.*'mine'.*'old/item', 'old/user', 'other'"),
    "no such variable": ({"other": "nobody"}, "'nobody'.*'other'"),
    "a scope for a variable": ({"old/": "mine"}, "'old/'.*'mine'"),
    "a scope without tables": ({"old/": "nothing/"}, "'nothing/'"),
    "a number": ({"other": 3}, "'other'.*3"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(saved, mistake):
    assignment_map, message = MISTAKES[mistake]
    with harness.graph_and_session():
        _model(["mine"], train.AdagradOptimizer(0.1))
        with pytest.raises(ValueError, match=message):
            sok.init_from_checkpoint(saved[0], assignment_map)


def test_no_checkpoint(session, tmp_path):
    _model(["mine"], train.AdagradOptimizer(0.1))
    with pytest.raises(ValueError, match=str(tmp_path)):
        sok.init_from_checkpoint(tmp_path, {"/": "/"})


def test_another_dim_is_told_by_the_initializer(session, saved):
    table = sok.EmbeddingVariable(name="mine", dim=7)
    sok.init_from_checkpoint(saved[0], {"other": table})
    with pytest.raises(tf.errors.InvalidArgumentError, match="mine.*7"):
        harness.initialize(session)


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
