# Tags: versions, old_version
# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""tf.compat.v1.train.Saver: a dictionary names tables, and slots of partitioned variables are slices."""

import json

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import checkpoint

train = tf.compat.v1.train


class Model:
    """A table, some rows of which a step of Adagrad moves, and an ordinary variable."""

    def __init__(self, name, seed=0, dense="dense"):
        self.table = sok.EmbeddingVariable(name, dim=3)
        self.dense = tf.compat.v1.get_variable(dense, initializer=float(seed))
        keys = np.random.default_rng(seed).integers(-50, 50, 20)
        self.rows = tf.nn.embedding_lookup(self.table, tf.constant(keys))
        loss = tf.reduce_sum(tf.sin(self.rows))
        self.step = train.AdagradOptimizer(0.1).minimize(loss, var_list=[self.table])


def trained(session, model):
    harness.initialize(session)
    session.run(model.step)
    return session.run([model.rows, model.dense])


@pytest.mark.parametrize("arguments", [{}, {"sharded": True}])
def test_a_table_is_saved_and_restored_under_the_given_name(tmp_path, arguments):
    with harness.graph_and_session() as session:
        model = Model("first", seed=5)
        names = {"given/name": model.table, "w": model.dense}
        saver = train.Saver(names, **arguments)
        want = trained(session, model)
        path = saver.save(session, str(tmp_path / "model"))
        session.run([model.step, model.dense.assign(0.0)])
        further = session.run(model.rows)
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(model.rows), want[0])
        assert session.run(model.dense) == want[1] == 5.0
    names = [name for name, _ in tf.train.list_variables(path) if "#" not in name]
    assert names == ["given/name", "w"]
    # Any Saver restores it to a variable of that name, which continues with the same slots.
    with harness.graph_and_session() as session:
        model = Model("given/name", seed=5, dense="w")
        train.Saver([model.table, model.dense]).restore(session, path)
        np.testing.assert_array_equal(session.run(model.rows), want[0])
        session.run(model.step)
        np.testing.assert_array_equal(session.run(model.rows), further)


def test_what_a_checkpoint_calls_a_table_is_restored_under_another_name(tmp_path):
    with harness.graph_and_session() as session:
        model = Model("old", seed=3)
        want = trained(session, model)
        path = train.Saver().save(session, str(tmp_path / "model"))
    with harness.graph_and_session() as session:
        model = Model("new", seed=3)
        train.Saver({"old": model.table, "dense": model.dense}).restore(session, path)
        np.testing.assert_array_equal(session.run(model.rows), want[0])
        with pytest.raises(tf.errors.NotFoundError, match="has no 'older'"):
            train.Saver({"older": model.table}).restore(session, path)


def test_two_tables_exchange_their_names(tmp_path):
    with harness.graph_and_session() as session:
        first, second = Model("a", seed=1, dense="c"), Model("b", seed=2, dense="d")
        saver = train.Saver({"b": first.table, "a": second.table})
        for model in (first, second):
            trained(session, model)
        contents = harness.contents_of_tables(session, [first.table, second.table])
        path = saver.save(session, str(tmp_path / "model"))
        train.Saver([first.table, second.table]).restore(session, path)
        found = harness.contents_of_tables(session, [second.table, first.table])
        np.testing.assert_equal(found, contents)


def test_programs_without_a_session_know_the_table_by_the_given_name(tmp_path):
    with harness.graph_and_session() as session:
        model = Model("first")
        saver = train.Saver({"given/name": model.table})
        trained(session, model)
        path = saver.save(session, str(tmp_path / "model"))
        saver.save(session, str(tmp_path / "model"))
        rows = len(harness.table_contents(session, model.table)[0])
    found = checkpoint.open_checkpoint(path)
    assert [entry.name for entry in found.tables] == ["given/name"]
    assert found.tables[0].open().last.rows == rows
    assert list(checkpoint.problems(found)) == []
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("third", dim=3)
        sok.init_from_checkpoint(path, {"given/name": table})
        harness.initialize(session)
        assert session.run(table.size()) == rows


@pytest.mark.parametrize(
    ("names", "error", "text"),
    [
        (lambda table: {"one": table, "two": table}, ValueError, "two names: two"),
        (lambda table: {"one": table, "table": table}, ValueError, "two names: table"),
        (lambda table: {"one": [table]}, ValueError, "list under the name 'one'.*variable 'table'"),
        (lambda table: {"": table}, ValueError, "empty name for embedding variable 'table'"),
        (lambda table: {3: table}, TypeError, "not a string: 3"),
    ],
)
def test_names_that_no_checkpoint_can_have(names, error, text):
    with harness.graph_and_session():
        table = sok.EmbeddingVariable("table", dim=3)
        with pytest.raises(error, match=text):
            train.Saver(names(table))


@pytest.mark.parametrize("use_resource", [True, False])
def test_slots_of_partitioned_variables(tmp_path, use_resource):
    """The optimizers whose slots have fewer dimensions than the variable. A part's scalars have its name."""
    slots = {"x": [6, 2], "x/AdamAsync": [6, 2], "x/AdamAsync_1": [6, 2]}
    slots.update({f"x/part_{part}/AdamAsync_{slot}": [] for part in (0, 1) for slot in (2, 3)})
    slots.update({"x/AdagradDecay": [6, 2], "x/AdagradDecay_1": [6], "x/RowWiseAdagrad": [6]})

    def build():
        step = train.get_or_create_global_step()
        parts = tf.compat.v1.get_variable(
            "x",
            [6, 2],
            initializer=tf.compat.v1.ones_initializer(),
            partitioner=tf.compat.v1.fixed_size_partitioner(2),
            use_resource=use_resource,
        )
        rows = tf.compat.v1.nn.embedding_lookup(parts, tf.constant([0, 5]), partition_strategy="div")
        optimizers = [
            sok.optimizers.AdamAsyncOptimizer(0.1),
            sok.optimizers.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=1),
            sok.optimizers.RowWiseAdagrad(0.1),
        ]
        steps = []
        for optimizer in optimizers:
            with tf.control_dependencies(steps):
                steps.append(optimizer.minimize(tf.reduce_sum(tf.square(rows))))
        return tf.group(*steps), tf.concat(list(parts), axis=0), train.Saver()

    with harness.graph_and_session() as session:
        step, rows, saver = build()
        harness.initialize(session)
        session.run(step)
        path = saver.save(session, str(tmp_path / "model"))
        session.run(step)
        want = session.run(rows)
    found = dict(tf.train.list_variables(path))
    assert {name: shape for name, shape in found.items() if name != "global_step"} == slots
    with harness.graph_and_session() as session:
        step, rows, saver = build()
        saver.restore(session, path)
        assert np.abs(session.run(rows) - want).max() > 0.01
        session.run(step)
        np.testing.assert_array_equal(session.run(rows), want)


def all_trained(session, models):
    harness.initialize(session)
    session.run([model.step for model in models])
    return [session.run(model.rows) for model in models]


def test_tensorflows_readers_find_a_table_under_its_variables_name(tmp_path):
    """As programs do that restore what a checkpoint has."""
    with harness.graph_and_session() as session:
        with tf.compat.v1.variable_scope("scope"):
            model = Model("table", seed=5)
        want = trained(session, model)
        path = train.Saver().save(session, str(tmp_path / "model"))
    reader = tf.train.load_checkpoint(path)
    assert reader.has_tensor("scope/table")
    assert json.loads(reader.get_tensor("scope/table"))["table"]["name"] == "scope/table"
    known = reader.get_variable_to_shape_map()
    assert dict(tf.train.list_variables(path)) == known
    of_table = {name for name in known if "#" in name}
    with harness.graph_and_session() as session:
        with tf.compat.v1.variable_scope("scope"):
            model = Model("table", seed=5)
        sok.EmbeddingVariable("other", dim=3)
        found = [one for one in tf.compat.v1.global_variables() if one.op.name in known]
        assert len(found) == len(known.keys() - of_table) == 2 and any(one is model.table for one in found)
        harness.initialize(session)
        train.Saver(found).restore(session, path)
        np.testing.assert_array_equal(session.run(model.rows), want[0])


def test_names_and_strings_that_look_like_entries(tmp_path):
    """Tables whose names look like the entries of the table `t`, and strings of the program's own."""
    strings = {"a": '{"format":"sparse-operation-kit table"', "json": '{"format": 3}', "t2": "t"}
    with harness.graph_and_session() as session:
        tables = [Model("t", seed=1, dense="c"), Model("t/keys", seed=2, dense="d")]
        words = [tf.compat.v1.get_variable(name, initializer=text) for name, text in strings.items()]
        saver = train.Saver()
        want = all_trained(session, tables)
        path = saver.save(session, str(tmp_path / "model"))
        assert [entry.name for entry in checkpoint.open_checkpoint(path).tables] == ["t", "t/keys"]
        session.run([model.step for model in tables] + [word.assign("") for word in words])
        saver.restore(session, path)
        for rows, model in zip_equal(want, tables):
            np.testing.assert_array_equal(session.run(model.rows), rows)
        assert session.run(words) == [text.encode() for text in strings.values()]
        # The first table alone is not taken for the other one.
        path = train.Saver([tables[1].table]).save(session, str(tmp_path / "second"))
        with pytest.raises(tf.errors.NotFoundError, match="has no 't'"):
            train.Saver([tables[0].table]).restore(session, path)


def _same_shapes(path):
    """The variables that programs choose which compare shapes with those of a checkpoint."""
    shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    return [
        one
        for one in tf.compat.v1.global_variables()
        if one.op.name in shapes and shapes[one.op.name] == one.shape.as_list()
    ]


def _warnings(caplog):
    return [one.getMessage() for one in caplog.records if one.name.startswith("sparse_operation_kit")]


@pytest.fixture(scope="module")
def two_tables(tmp_path_factory):
    """The prefix of a checkpoint of a dense variable and the tables "a" and "b"."""
    with harness.graph_and_session() as session:
        models = [Model("a", dense="c"), Model("b", dense="d")]
        saver = train.Saver()
        for model in models:
            trained(session, model)
        return saver.save(session, str(tmp_path_factory.mktemp("two") / "model"))


@pytest.mark.parametrize("sharded", [False, True])
def test_tables_that_a_restore_leaves_out_are_named_once(two_tables, caplog, sharded):
    """Also if the program has a Saver of everything, for its own checkpoints."""
    with harness.graph_and_session() as session:
        Model("a", dense="c")
        Model("b", dense="d")
        Model("own", dense="e")
        train.Saver()
        saver = train.Saver(_same_shapes(two_tables), sharded=sharded)
        harness.initialize(session)
        saver.restore(session, two_tables)
        saver.restore(session, two_tables)
    for name, message in zip_equal("ab", _warnings(caplog)):
        assert f"{two_tables} has embedding variable '{name}'" in message and "not by shape" in message


def test_tables_that_init_from_checkpoint_leaves_out_are_named(two_tables, caplog):
    with harness.graph_and_session():
        Model("a", dense="c")
        Model("b", dense="d")
        train.init_from_checkpoint(two_tables, {one.op.name: one for one in _same_shapes(two_tables)})
    for name, message in zip_equal("ab", _warnings(caplog)):
        assert f"{two_tables} has embedding variable '{name}'" in message and "not by shape" in message


def test_parts_are_loaded_without_a_warning(two_tables, caplog):
    def tables_first(first, second):
        sok.init_from_checkpoint(two_tables, {"a": first.table, "b": second.table})
        train.init_from_checkpoint(two_tables, {"c": first.dense, "d": second.dense})

    for case in (
        tables_first,
        lambda first, second: train.init_from_checkpoint(two_tables, {"c": first.dense}),
        lambda first, second: train.init_from_checkpoint(two_tables, {"a": first.table}),
        lambda first, second: train.init_from_checkpoint(two_tables, {}),
    ):
        with harness.graph_and_session():
            case(Model("a", dense="c"), Model("b", dense="d"))
        assert _warnings(caplog) == []


def test_parts_of_a_checkpoint_are_restored_without_a_warning(two_tables, caplog, tmp_path):
    def one_savers_tables_first(session, first, second):
        train.Saver([first.table, second.table]).restore(session, two_tables)
        train.Saver([first.dense, second.dense]).restore(session, two_tables)

    def dense_variables_first(session, first, second):
        parts = [[first.dense, second.dense], {"a": first.table}, [second.table]]
        for saver in [train.Saver(part) for part in parts]:
            saver.restore(session, two_tables)

    def everything(session, first, second):
        train.Saver().restore(session, two_tables)
        train.Saver([first.dense]).restore(session, two_tables)

    def warm_start(session, first, second):
        sok.init_from_checkpoint(two_tables, {"/": "/"})
        harness.initialize(session)
        train.Saver(_same_shapes(two_tables)).restore(session, two_tables)

    def rows_from_elsewhere(session, first, second):
        restored = sok.Saver().restore_from_file(first.table, str(tmp_path))
        assigned = second.table.assign_rows([1], np.ones([1, 3], np.float32))
        train.Saver(_same_shapes(two_tables)).restore(session, two_tables)
        session.run(assigned)
        assert restored.shape == []

    for case in (
        one_savers_tables_first,
        dense_variables_first,
        everything,
        warm_start,
        rows_from_elsewhere,
    ):
        with harness.graph_and_session() as session:
            models = Model("a", dense="c"), Model("b", dense="d")
            harness.initialize(session)
            case(session, *models)
        assert _warnings(caplog) == [], case
