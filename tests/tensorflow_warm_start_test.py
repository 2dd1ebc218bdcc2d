# Tags: versions
"""TensorFlow's init_from_checkpoint and warm_start fill tables, and ordinary variables beside them."""

import os

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from same_length import zip_equal

session = harness.session
v1 = tf.compat.v1
train = v1.train
KEYS = np.arange(-3, 9)
SLICES = v1.fixed_size_partitioner(2)
EVERYTHING = ("user", "item", "kernel", "slices")


class Model:
    """Two tables, one of them as DeepRec makes them, and ordinary variables, one of them in slices."""

    def __init__(self, scope="old", optimizer=None):
        self.user = sok.EmbeddingVariable(f"{scope}/user", dim=3)
        with v1.variable_scope(scope):
            self.item = sok.get_embedding_variable("item", embedding_dim=2)
            self.kernel = v1.get_variable("kernel", [4])
            self.slices = v1.get_variable("slices", [4, 2], partitioner=SLICES)
        self.keys = v1.placeholder_with_default(tf.constant(KEYS, tf.int64), [None])
        self.rows = [tf.nn.embedding_lookup(table, self.keys) for table in (self.user, self.item)]
        values = [*self.rows, self.kernel, tf.convert_to_tensor(self.slices)]
        self.values = dict(zip_equal(EVERYTHING, values))
        if optimizer is not None:
            self.step = optimizer.minimize(tf.add_n([tf.reduce_sum(one * one) for one in values]))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """By kind of checkpoint, its prefix and the model's values; the last one is an incremental one."""
    folder = tmp_path_factory.mktemp("saved")
    found = {}
    with harness.graph_and_session() as session:
        train.get_or_create_global_step()
        model = Model(optimizer=train.AdagradOptimizer(0.1))
        increments = sok.IncrementalCheckpointHook(str(folder), save_steps=100)
        full = train.Saver()
        increments.begin()
        harness.initialize(session)
        increments.after_create_session(session, None)
        for kind, saver, keys in (("full", full, KEYS), ("incremental", increments._saves._saver, KEYS[2:7])):
            session.run(model.step, {model.keys: keys})
            prefix = saver.save(session, str(folder / kind))
            found[kind] = prefix, session.run(model.values)
    assert os.path.basename(tf.train.latest_checkpoint(str(folder))) == "incremental"
    return found


def _assert_loaded(session, model, values, names=EVERYTHING):
    """Checks that these variables are as in the checkpoint, and all others are not."""
    harness.initialize(session)
    same = {name: np.array_equal(value, values[name]) for name, value in session.run(model.values).items()}
    assert same == {name: name in names for name in values}


@pytest.mark.parametrize("kind", ["full", "incremental"])
@pytest.mark.parametrize("how", ["init_from_checkpoint", "warm_start"])
def test_everything(session, saved, kind, how):
    prefix, values = saved[kind]
    model = Model()
    if how == "warm_start":
        train.warm_start(prefix)
    else:
        train.init_from_checkpoint(prefix, {"/": "/"})
    _assert_loaded(session, model, values)


def test_the_latest_checkpoint_of_a_folder(session, saved):
    prefix, values = saved["incremental"]
    model = Model()
    train.init_from_checkpoint(os.path.dirname(prefix), {"old/": "old/"})
    _assert_loaded(session, model, values)


# By name: the scope of the model, the assignment map of its variables, and the variables that it loads.
MAPS = {
    "a scope": ("new", lambda model: {"old/": "new/"}, EVERYTHING),
    "a scope from the root": ("deep/old", lambda model: {"/": "deep/"}, EVERYTHING),
    "a scope without tables": (
        "new",
        lambda model: {"old/": "none/", "old/kernel": "new/kernel"},
        ("kernel",),
    ),
    "a scope, and a name that is ignored": ("new", lambda model: {"old/": "new/name"}, EVERYTHING),
    "the end of a scope": ("deep/new", lambda model: {"old/": "new/"}, ()),
    "names": ("new", lambda model: {f"old/{name}": f"new/{name}" for name in EVERYTHING}, EVERYTHING),
    "variables": (
        "new",
        lambda model: {
            "old/user": (model.user,),
            "old/item": [model.item],
            "old/kernel": model.kernel,
            "old/slices": list(model.slices),
        },
        EVERYTHING,
    ),
    "some": ("new", lambda model: {"old/item": "new/item", "old/slices": "new/slices"}, ("item", "slices")),
    "a table": ("new", lambda model: {"old/user": "new/user"}, ("user",)),
    "nothing": ("new", lambda model: {}, ()),
}
if not tf.__version__.startswith("1."):  # which takes a dict only
    MAPS["pairs"] = ("new", lambda model: [("old/user", model.user), ("old/", "new/")], EVERYTHING)


@pytest.mark.parametrize("name", MAPS)
def test_assignment_maps(session, saved, name):
    prefix, values = saved["full"]
    scope, assignment_map, loaded = MAPS[name]
    model = Model(scope)
    train.init_from_checkpoint(prefix, assignment_map(model))
    _assert_loaded(session, model, values, loaded)
    with v1.variable_scope(scope, reuse=True):
        assert sok.get_embedding_variable("item", embedding_dim=2) is model.item


def test_a_table_that_is_in_another_collection(session, saved):
    prefix, values = saved["full"]
    with v1.variable_scope("old"):
        item = sok.get_embedding_variable("item", embedding_dim=2, collections=["mine"])
    assert not v1.global_variables()
    train.init_from_checkpoint(prefix, {"/": "/"})
    rows = tf.nn.embedding_lookup(item, KEYS)
    session.run(item.initializer)
    np.testing.assert_array_equal(session.run(rows), values["item"])


# By name: what to warm-start, and the variables that it loads.
SELECTIONS = {
    "everything that is trainable": (lambda model: ".*", EVERYTHING),
    "a pattern": (lambda model: ".*(user|kernel)", ("user", "kernel")),
    "patterns": (lambda model: ["old/item", "old/s"], ("item", "slices")),
    "variables": (lambda model: [model.user, model.kernel], ("user", "kernel")),
    "nothing": (lambda model: None, ()),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_of_a_warm_start(session, saved, name):
    prefix, values = saved["full"]
    select, loaded = SELECTIONS[name]
    model = Model()
    train.warm_start(prefix, vars_to_warm_start=select(model))
    _assert_loaded(session, model, values, loaded)


def test_a_warm_start_from_other_names(session, saved):
    prefix, values = saved["incremental"]
    model = Model("new")
    names = {f"new/{name}": f"old/{name}" for name in EVERYTHING}
    train.warm_start(prefix, var_name_to_prev_var_name=names)
    _assert_loaded(session, model, values)


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15 warm-starts one of them only")
def test_a_warm_start_of_two_tables_from_one(session, saved):
    prefix, values = saved["full"]
    model, other = Model(), sok.EmbeddingVariable("other", dim=3)
    train.warm_start(prefix, ".*(user|other)", var_name_to_prev_var_name={"other": "old/user"})
    _assert_loaded(session, model, values, ("user",))
    rows = session.run(tf.nn.embedding_lookup(other, KEYS))
    np.testing.assert_array_equal(rows, values["user"])


def test_a_vocabulary_of_an_ordinary_variable_beside_tables(session, saved, tmp_path):
    prefix, values = saved["full"]
    (tmp_path / "before").write_text("a\nb\nc\nd")
    (tmp_path / "after").write_text("d\nc\nb\na")
    vocabulary = train.VocabInfo(str(tmp_path / "after"), 4, 0, str(tmp_path / "before"))
    model = Model()
    train.warm_start(prefix, var_name_to_vocab_info={"old/slices": vocabulary})
    _assert_loaded(session, model, {**values, "slices": values["slices"][::-1]})


@pytest.mark.parametrize(
    ("optimizer", "selection"),
    [(train.GradientDescentOptimizer, ".*"), (train.AdagradOptimizer, ["old/"])],
)
def test_slots_of_tables_begin_anew(session, saved, tmp_path, optimizer, selection):
    prefix, values = saved["full"]
    model = Model(optimizer=optimizer(0.1))
    train.warm_start(prefix, selection)
    saver = train.Saver()
    _assert_loaded(session, model, values)
    found = harness.saved_tables(saver.save(session, str(tmp_path / "model")))
    assert set(found["old/user"]) == set(found["old/item"]) == {"keys", "values"}
    session.run(model.step)


def test_sok_init_may_come_later(saved):
    prefix, values = saved["full"]
    with tf.Graph().as_default(), v1.Session(config=harness.session_config()) as session:
        model = Model()
        train.init_from_checkpoint(prefix, {"/": "/"})
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        _assert_loaded(session, model, values)


def _vocabulary():
    return train.VocabInfo("after", 4, 0, "before")


MISTAKES = {
    "no such table": (
        lambda path, model: train.init_from_checkpoint(
            path, {"old/kernel": model.kernel, "nobody": model.user}
        ),
        "'nobody'.*'old/user'.*'old/item', 'old/user'",
    ),
    "no such table in the scope": (
        lambda path, model: train.init_from_checkpoint(path, {"old/": "/"}),
        "'old/old/(user|item)'.*'old/(user|item)'.*'old/item', 'old/user'",
    ),
    "a scope without its slash": (
        lambda path, model: train.init_from_checkpoint(path, {"old/": "new"}),
        "'old/': 'new' maps a scope.*ends with a slash",
    ),
    "no such name": (
        lambda path, model: train.warm_start(path, var_name_to_prev_var_name={"old/user": "nobody"}),
        "'nobody'.*'old/user'.*'old/item', 'old/user'",
    ),
    "no matrix": (
        lambda path, model: train.init_from_checkpoint(path, {"old/kernel": model.item}),
        "'old/kernel'.*'old/item'.*no matrix of floats.*load_variable.*assign_rows",
    ),
    "slices": (
        lambda path, model: train.init_from_checkpoint(path, {"old/user": [model.user, model.item]}),
        "'old/user'.*'old/user'.*slices",
    ),
    "a vocabulary": (
        lambda path, model: train.warm_start(path, var_name_to_vocab_info={"old/user": _vocabulary()}),
        "'old/user'.*VocabInfo.*assign_rows",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_before_anything_changes(saved, mistake):
    call, message = MISTAKES[mistake]
    with tf.Graph().as_default():
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        model = Model()
        before = [one.initializer for one in v1.global_variables()]
        with pytest.raises(ValueError, match=message):
            call(saved["full"][0], model)
        assert [one.initializer for one in v1.global_variables()] == before
        with v1.variable_scope("old", reuse=True):
            assert sok.get_embedding_variable("item", embedding_dim=2) is model.item


KEYS_CHECKPOINT = np.arange(-5, 15)


def _model(names, optimizer):
    tables = {name: sok.EmbeddingVariable(name=name, dim=3) for name in names}
    losses = [
        tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, KEYS_CHECKPOINT))) for table in tables.values()
    ]
    return tables, optimizer.minimize(tf.add_n(losses), var_list=list(tables.values()))


@pytest.fixture(scope="module")
def saved_checkpoint(tmp_path_factory):
    """(prefix, the arrays of the tables) of a checkpoint."""
    folder = tmp_path_factory.mktemp("saved")
    with harness.graph_and_session() as session:
        _, step = _model(["old/user", "old/item", "other"], train.AdagradOptimizer(0.1))
        harness.initialize(session)
        for _ in range(3):
            session.run(step)
        prefix = train.Saver().save(session, str(folder / "model"), global_step=3)
    return prefix, harness.saved_tables(prefix)


def _assert_loaded_checkpoint(session, table, arrays):
    keys, rows = harness.table_contents(session, table)
    order = np.argsort(keys)
    harness.assert_equal_arrays([keys[order], rows[order]], [arrays["keys"], arrays["values"]])


@pytest.mark.parametrize("by", ["variable", "name"])
def test_a_table_under_another_name(session, saved_checkpoint, by):
    prefix, arrays = saved_checkpoint
    tables, step = _model(["mine", "untouched"], train.MomentumOptimizer(0.1, 0.9))
    sok.init_from_checkpoint(prefix, {"old/user": tables["mine"] if by == "variable" else "mine"})
    harness.initialize(session)
    _assert_loaded_checkpoint(session, tables["mine"], arrays["old/user"])
    assert session.run(tables["untouched"].size()) == 0
    session.run(step)  # of another optimizer
    # The initializer loads the table again.
    harness.initialize(session)
    _assert_loaded_checkpoint(session, tables["mine"], arrays["old/user"])


@pytest.mark.parametrize("optimizer_state", [False, True])
def test_slots_come_only_where_they_are_asked_for(session, saved_checkpoint, tmp_path, optimizer_state):
    prefix, arrays = saved_checkpoint
    _, step = _model(["mine"], train.AdagradOptimizer(0.1))
    sok.init_from_checkpoint(prefix, {"other": "mine"}, optimizer_state=optimizer_state)
    saver = train.Saver()
    harness.initialize(session)
    found = harness.saved_tables(saver.save(session, str(tmp_path / "model")))["mine"]
    assert ("slot-accumulator" in found) == optimizer_state
    for name, array in found.items():
        np.testing.assert_array_equal(array, arrays["other"][name])
    session.run(step)


def test_a_saver_restores_over_it(session, saved_checkpoint):
    prefix, arrays = saved_checkpoint
    tables, _ = _model(["other"], train.AdagradOptimizer(0.1))
    sok.init_from_checkpoint(prefix, {"old/user": "other"})
    train.Saver().restore(session, prefix)
    _assert_loaded_checkpoint(session, tables["other"], arrays["other"])


MISTAKES_CHECKPOINT = {
    "no such table": ({"nobody": "mine"}, "'nobody'.*'mine'.*'old/item', 'old/user', 'other'"),
    "no such variable": ({"other": "nobody"}, "'nobody'.*'other'"),
    "a scope for a variable": ({"old/": "mine"}, "'old/'.*'mine'"),
    "a scope without tables": ({"old/": "nothing/"}, "'nothing/'"),
    "a number": ({"other": 3}, "'other'.*3"),
}


@pytest.mark.parametrize("mistake", MISTAKES_CHECKPOINT)
def test_mistakes(saved_checkpoint, mistake):
    assignment_map, message = MISTAKES_CHECKPOINT[mistake]
    with harness.graph_and_session():
        _model(["mine"], train.AdagradOptimizer(0.1))
        with pytest.raises(ValueError, match=message):
            sok.init_from_checkpoint(saved_checkpoint[0], assignment_map)


def test_no_checkpoint(session, tmp_path):
    _model(["mine"], train.AdagradOptimizer(0.1))
    with pytest.raises(ValueError, match=str(tmp_path)):
        sok.init_from_checkpoint(tmp_path, {"/": "/"})


def test_another_dim_is_told_by_the_initializer(session, saved_checkpoint):
    table = sok.EmbeddingVariable(name="mine", dim=7)
    sok.init_from_checkpoint(saved_checkpoint[0], {"other": table})
    with pytest.raises(tf.errors.InvalidArgumentError, match="mine.*7"):
        harness.initialize(session)
