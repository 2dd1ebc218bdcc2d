# Tags: versions
"""tf.compat.v1.train.Saver saves complete tables: rows, optimizer slots and state, for any later session."""

import os
import pathlib
import re
import tempfile

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit import compat, native
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part

pytestmark = pytest.mark.cases_on_gpu(2)
session = harness.session

v1 = tf.compat.v1
train = v1.train

# Without slots, with three, with slots of one number a row, and with state that is no slot. All others go on
# from checkpoints in optimizer_registry_test.
OPTIMIZERS = {
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "centered rmsprop": lambda: train.RMSPropOptimizer(0.1, centered=True),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adam": lambda: train.AdamOptimizer(0.1),
    "sok adam": lambda: sok.optimizers.Adam(0.1),
    "lazy adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.1),
    "row-wise adagrad": lambda: sok.optimizers.RowWiseAdagrad(0.1),
}
_KERAS = [module for _, module in compat.legacy_keras_optimizers()]
KERAS_OPTIMIZERS = {
    "keras nadam": lambda: _KERAS[0].Nadam(0.1),
    "keras adam": lambda: _KERAS[0].Adam(0.1),
}
if compat.HAS_KERAS_2:
    OPTIMIZERS.update(KERAS_OPTIMIZERS)


class Model:
    """Two tables and a dense variable, trained on fed keys."""

    def __init__(self, optimizer="sgd", capacity=None):
        self.keys = v1.placeholder(tf.int64, [None])
        with tf.name_scope("user"):
            first = sok.EmbeddingVariable(name="table", dim=3, capacity=capacity)
        self.tables = [first, sok.EmbeddingVariable(name="item", dim=2, initializer="random_normal")]
        rows = [tf.nn.embedding_lookup(table, self.keys) for table in self.tables]
        values = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
        kernel = v1.get_variable("kernel", initializer=values, use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.concat(rows, axis=1), kernel) - 1.0))
        made = OPTIMIZERS[optimizer]()
        variables = [*self.tables, kernel]
        if isinstance(made, train.Optimizer):
            self.step = made.minimize(loss, var_list=variables)
        else:
            self.step = tf.group(made.get_updates(loss, variables))
        self.kernel = kernel
        self.saver = train.Saver(max_to_keep=2)
        self.saver_of_state = train.Saver(self.tables)

    def train(self, session, steps):
        for step in steps:
            session.run(self.step, {self.keys: np.random.default_rng(step).integers(-5, 30, 12)})

    def state(self, session):
        """The state in a checkpoint: the tables' keys, rows and slots, and the kernel."""
        with tempfile.TemporaryDirectory() as folder:
            path = self.saver_of_state.save(session, f"{folder}/state", write_state=False)
            tables = harness.saved_tables(path)
        return [tables[table.m_var_name] for table in self.tables] + [{"kernel": session.run(self.kernel)}]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_after_a_restore_as_without(tmp_path, optimizer):
    def assert_goes_on(session):
        np.testing.assert_equal(model.state(session), saved)
        model.train(session, range(4, 7))
        np.testing.assert_equal(model.state(session), want)

    with harness.graph_and_session() as session:
        model = Model(optimizer)
        harness.initialize(session)
        model.train(session, range(4))
        path = model.saver.save(session, str(tmp_path / "model"))
        saved = model.state(session)
        model.train(session, range(4, 7))
        want = model.state(session)
        # Into tables in use, with rows that the checkpoint does not have.
        model.train(session, range(7, 10))
        model.saver.restore(session, path)
        assert_goes_on(session)
    with harness.graph_and_session() as session:
        model = Model(optimizer)
        model.saver.restore(session, path)  # without running initializers
        assert_goes_on(session)


@pytest.mark.parametrize("optimizer", ["adagrad", "sok adam"])
def test_saving_changes_nothing(tmp_path, optimizer):
    results = []
    for save in (False, True):
        with harness.graph_and_session() as session:
            model = Model(optimizer)
            harness.initialize(session)
            for step in range(6):
                model.train(session, [step])
                if save:
                    model.saver.save(session, str(tmp_path / "model"))
            results.append(model.state(session))
    for one, other in zip_equal(*results):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)


def test_a_table_that_nothing_trained_yet(tmp_path):
    with harness.graph_and_session() as session:
        model = Model("lazy adam")
        harness.initialize(session)
        path = model.saver.save(session, str(tmp_path / "model"))
        model.train(session, range(3))
        want = model.state(session)
    with harness.graph_and_session() as session:
        model = Model("lazy adam")
        model.saver.restore(session, path)
        assert [len(table["keys"]) for table in model.state(session)[:2]] == [0, 0]
        model.train(session, range(3))
        np.testing.assert_equal(model.state(session), want)


def _names(folder, pattern):
    return {path.name.split(".")[0] for path in pathlib.Path(folder).glob(pattern)}


def test_old_checkpoints_are_removed_and_the_latest_is_found(tmp_path):
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        for step in range(4):
            model.train(session, [step])
            model.saver.save(session, str(tmp_path / "model"), global_step=step)
        assert train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model-3")
        assert model.saver.last_checkpoints == [str(tmp_path / "model-2"), str(tmp_path / "model-3")]
        assert _names(tmp_path, "model*") == {"model-2", "model-3"}
        assert saved_files.bases(tmp_path) == ["model-2", "model-3"]
        want = model.state(session)
    with harness.graph_and_session() as session:
        model = Model()
        model.saver.restore(session, train.latest_checkpoint(str(tmp_path)))
        np.testing.assert_equal(model.state(session), want)


def test_old_checkpoints_whose_names_have_nothing_in_common_go_too(session, tmp_path):
    model = Model()
    harness.initialize(session)
    for name in "abcd":
        model.saver.save(session, str(tmp_path / name))
    assert _names(tmp_path, "*.index") == {"c", "d"} == set(saved_files.bases(tmp_path))


def test_saving_to_the_same_prefix_again(session, tmp_path):
    model = Model("adagrad")
    harness.initialize(session)
    for step in range(3):
        model.train(session, [step])
        path = model.saver.save(session, str(tmp_path / "model"))
    want = model.state(session)
    assert len(list(tmp_path.glob("model.*"))) == 4  # the other variables, tables, index and graph
    model.train(session, range(3, 5))
    model.saver.restore(session, path)
    np.testing.assert_equal(model.state(session), want)


def test_tables_go_with_their_checkpoints_in_every_directory(session, tmp_path):
    model = Model()
    saver = train.Saver(max_to_keep=5)
    harness.initialize(session)
    for step in range(9):
        saver.save(session, str(tmp_path / f"{step % 4}" / "model"), global_step=step)
    assert _names(tmp_path, "*/*.index") == {f"model-{i}" for i in range(4, 9)}
    assert _names(tmp_path, "*/*.data-*") == {f"model-{i}" for i in range(4, 9)}
    for path in saver.last_checkpoints:
        model.saver.restore(session, path)


def test_a_checkpoint_moves_with_its_folder_or_under_another_name(session, tmp_path):
    model = Model("adagrad")
    harness.initialize(session)
    model.train(session, range(2))
    model.saver.save(session, str(tmp_path / "old" / "model"))
    want = model.state(session)
    (tmp_path / "old").rename(tmp_path / "new")
    for path in list((tmp_path / "new").glob("model.*")):
        path.rename(path.with_name(path.name.replace("model", "best")))
    (tmp_path / "link").symlink_to(tmp_path / "new")
    for prefix in ("new/best", "link/best"):
        model.train(session, range(2, 4))
        model.saver.restore(session, str(tmp_path / prefix))
        np.testing.assert_equal(model.state(session), want)


def test_paths_steps_and_state_files_are_as_without_tables(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = train.get_or_create_global_step()
    model = Model()
    saver = train.Saver(pad_step_number=True, save_relative_paths=True)
    harness.initialize(session)
    session.run(step.assign(7))
    path = saver.save(session, "model", global_step=step, latest_filename="newest", meta_graph_suffix="graph")
    assert path == "model-00000007"
    assert sorted(os.listdir(tmp_path)) == [
        "model-00000007.data-00000-of-00002",
        "model-00000007.data-00001-of-00002",
        "model-00000007.graph",
        "model-00000007.index",
        "newest",
    ]
    assert saved_files.bases(tmp_path) == ["model-00000007"]
    assert 'model_checkpoint_path: "model-00000007"' in (tmp_path / "newest").read_text()
    saver.restore(session, "model-00000007")
    with pytest.raises(ValueError, match="path components"):
        model.saver.save(session, "model", latest_filename="a/b")


@pytest.mark.parametrize("sharded", [False, True])
def test_the_older_format_is_refused(sharded):
    """It has no index, which says what tables a checkpoint has."""
    with tf.Graph().as_default():
        table = sok.EmbeddingVariable("lonely", dim=2)
        for variables in (None, {"renamed": table}):
            with pytest.raises(ValueError, match=f"{'renamed' if variables else 'lonely'}.*write_version"):
                train.Saver(variables, write_version=train.SaverDef.V1, sharded=sharded)
        dense = v1.get_variable("dense", initializer=1.0)
        train.Saver([dense], write_version=train.SaverDef.V1, sharded=sharded)


def test_a_saver_of_some_tables(session, tmp_path):
    model = Model()
    saver = train.Saver([model.tables[1]])
    harness.initialize(session)
    model.train(session, range(2))
    path = saver.save(session, str(tmp_path / "model"))
    before = model.state(session)
    model.train(session, range(2, 4))
    after = model.state(session)
    saver.restore(session, path)
    np.testing.assert_equal(model.state(session), [after[0], before[1], after[2]])


def test_saving_before_the_initializer_names_the_table(session, tmp_path):
    model = Model()
    session.run(model.kernel.initializer)
    with pytest.raises(tf.errors.FailedPreconditionError, match="'(user/table|item)'.*not initialized"):
        model.saver.save(session, str(tmp_path / "model"))


@pytest.mark.parametrize("failing", [0, 1])
def test_the_error_of_one_table_is_not_lost_behind_another(tmp_path, failing):
    with harness.graph_and_session() as session:
        tables = [sok.EmbeddingVariable(name, 2) for name in ("a", "b")]
        harness.initialize(session)

        def stage(tables, save_id, stage):
            handles = [table.handle for table in tables]
            return native.ops.sok_checkpoint_stage(
                handles, str(tmp_path / "model"), save_id, "", True, stage=stage, incremental=False
            )

        # One of the two has not begun.
        begun = stage([tables[1 - failing]], 0, "begin")
        written = stage(tables, begun.save_id, "write")
        code, message = session.run([written.code, written.message])
    assert code == tf.errors.FAILED_PRECONDITION
    assert f"'{tables[failing].m_var_name}'" in message.decode()


def test_restoring_in_a_graph_without_init_names_init(tmp_path):
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        path = model.saver.save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), v1.Session() as session:
        model = Model()
        with pytest.raises(tf.errors.FailedPreconditionError, match="sok.Init"):
            model.saver.restore(session, path)


def test_savers_without_tables_get_the_same_ops(tmp_path):
    """Whether Savers' methods are wrapped or not."""

    def build(sharded):
        with tf.Graph().as_default() as graph, v1.Session() as session:
            variables = [tf.Variable(np.ones([3, 2], np.float32), name=f"dense_{i}") for i in range(3)]
            saver = train.Saver(variables, sharded=sharded)
            session.run(v1.global_variables_initializer())
            path = saver.save(session, str(tmp_path / f"plain_{sharded}"))
            saver.restore(session, path)
            # 1.15 puts a random number into the names of the parts of a sharded file.
            return re.sub("_temp_[0-9a-f]{32}", "_temp", str(graph.as_graph_def()))

    replacements.uninstall(Part.SAVERS)
    without = [build(sharded) for sharded in (False, True)]
    replacements.install(Part.SAVERS)
    assert replacements.is_installed(Part.SAVERS)
    assert [build(sharded) for sharded in (False, True)] == without


def test_tensorflow_alone_reads_a_checkpoint(tmp_path):
    with harness.graph_and_session() as session:
        model = Model("adagrad")
        harness.initialize(session)
        model.train(session, range(3))
        path = model.saver.save(session, str(tmp_path / "model"))
        contents = harness.contents_of_tables(session, model.tables)
    saved = harness.saved_tables(path)
    assert saved.keys() == {"user/table", "item"}
    for table, (keys, rows) in zip_equal(model.tables, contents):
        arrays, order = saved[table.m_var_name], np.argsort(keys)
        assert sorted(arrays) == ["keys", "slot-accumulator", "values"]
        np.testing.assert_array_equal(arrays["keys"], keys[order])
        np.testing.assert_array_equal(arrays["values"], rows[order])
        assert arrays["slot-accumulator"].shape == rows.shape
        assert saved_files.entry(path, table.m_var_name)["optimizer"]["name"] == "adagrad"


def test_a_checkpoint_that_does_not_fit_leaves_the_table_alone(tmp_path):
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        model.train(session, range(3))
        path = model.saver.save(session, str(tmp_path / "model"))
    with harness.graph_and_session() as session:
        model = Model(capacity=4)
        harness.initialize(session)
        session.run(tf.nn.embedding_lookup(model.tables[0], [100, 101]))
        before = model.state(session)
        with pytest.raises(tf.errors.ResourceExhaustedError, match="user/table.*4"):
            model.saver.restore(session, path)
        np.testing.assert_equal(model.state(session), before)
