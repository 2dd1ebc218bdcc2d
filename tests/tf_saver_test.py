"""tf.compat.v1.train.Saver saves whole tables: rows, optimizer slots and state, for any later session."""

import os

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit import compat

v1 = tf.compat.v1
train = v1.train

OPTIMIZERS = {
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "rmsprop": lambda: train.RMSPropOptimizer(0.1, momentum=0.5),
    "centered rmsprop": lambda: train.RMSPropOptimizer(0.1, centered=True),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adam": lambda: train.AdamOptimizer(0.1),
    "sok adam": lambda: sok.optimizers.Adam(0.1),
    "lazy adam": lambda: sok.tf.keras.optimizers.LazyAdamOptimizer(0.1),
    "row-wise adagrad": lambda: sok.optimizers.RowWiseAdagrad(0.1),
}
KERAS_OPTIMIZERS = {
    "keras adagrad": lambda: tf.keras.optimizers.legacy.Adagrad(0.1),
    "keras rmsprop": lambda: tf.keras.optimizers.legacy.RMSprop(0.1, centered=True),
    "keras adam": lambda: tf.keras.optimizers.legacy.Adam(0.1),
}
if compat.HAS_KERAS_2:
    OPTIMIZERS |= KERAS_OPTIMIZERS


class Model:
    """Two tables and a dense variable, trained on fed keys."""

    def __init__(self, optimizer="sgd", capacity=None):
        self.keys = v1.placeholder(tf.int64, [None])
        with tf.name_scope("user"):
            first = sok.EmbeddingVariable(name="table", dim=3, capacity=capacity)
        self.tables = [first, sok.EmbeddingVariable(name="item", dim=2, initializer="random_normal")]
        rows = [tf.nn.embedding_lookup(table, self.keys) for table in self.tables]
        kernel = v1.get_variable("kernel", initializer=np.linspace(-1, 1, 5, dtype=np.float32)[:, None])
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.concat(rows, axis=1), kernel) - 1.0))
        made = OPTIMIZERS[optimizer]()
        variables = [*self.tables, kernel]
        if isinstance(made, train.Optimizer):
            self.step = made.minimize(loss, var_list=variables)
        else:
            self.step = tf.group(made.get_updates(loss, variables))
        self.kernel = kernel
        self.saver = train.Saver(max_to_keep=2)

    def train(self, session, steps):
        for step in steps:
            session.run(self.step, {self.keys: np.random.default_rng(step).integers(-5, 30, 12)})

    def state(self, session):
        contents = [array for table in self.tables for array in harness.table_contents(session, table)]
        return [*contents, session.run(self.kernel)]


def assert_same(got, want):
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_after_a_restore_as_without(tmp_path, optimizer):
    with harness.graph_and_session() as session:
        model = Model(optimizer)
        harness.initialize(session)
        model.train(session, range(4))
        path = model.saver.save(session, str(tmp_path / "model"))
        saved = model.state(session)
        model.train(session, range(4, 7))
        want = model.state(session)
    with harness.graph_and_session() as session:
        model = Model(optimizer)
        model.saver.restore(session, path)  # no initializer has run
        assert_same(model.state(session), saved)
        model.train(session, range(4, 7))
        assert_same(model.state(session), want)


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
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_restore_replaces_what_was_there(tmp_path):
    with harness.graph_and_session() as session:
        model = Model("adagrad")
        harness.initialize(session)
        model.train(session, range(2))
        path = model.saver.save(session, str(tmp_path / "model"))
        saved = model.state(session)
        model.train(session, range(2, 6))
        model.saver.restore(session, path)
        assert_same(model.state(session), saved)


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
        assert [len(keys) for keys in model.state(session)[:3:2]] == [0, 0]
        model.train(session, range(3))
        assert_same(model.state(session), want)


def test_without_hashing(tmp_path):
    rows = {}
    for restored in (False, True):
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable(name="table", dim=2, capacity=9, use_hashtable=False)
            loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, [3, 8])))
            step = train.AdagradOptimizer(0.1).minimize(loss)
            saver = train.Saver()
            if restored:
                saver.restore(session, str(tmp_path / "model"))
            else:
                harness.initialize(session)
                session.run(step)
                saver.save(session, str(tmp_path / "model"))
            session.run(step)
            rows[restored] = session.run(table.read_value())
    np.testing.assert_array_equal(rows[True], rows[False])


def test_old_checkpoints_go_and_the_latest_is_found(tmp_path):
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        for step in range(4):
            model.train(session, [step])
            model.saver.save(session, str(tmp_path / "model"), global_step=step)
        assert train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model-3")
        kept = {name.split(".")[0] for name in os.listdir(tmp_path) if name.startswith("model")}
        assert kept == {"model-2", "model-3"}
        want = model.state(session)
    with harness.graph_and_session() as session:
        model = Model()
        model.saver.restore(session, train.latest_checkpoint(str(tmp_path)))
        assert_same(model.state(session), want)


@pytest.mark.parametrize("arguments", [{"sharded": True}, {"write_version": train.SaverDef.V2}])
def test_other_savers(tmp_path, arguments):
    with harness.graph_and_session() as session:
        model = Model("adagrad")
        saver = train.Saver(**arguments)
        harness.initialize(session)
        model.train(session, range(2))
        path = saver.save(session, str(tmp_path / "model"), write_meta_graph=False)
        want = model.state(session)
        model.train(session, range(2))
        saver.restore(session, path)
        assert_same(model.state(session), want)


def test_a_saver_of_some_tables(tmp_path):
    with harness.graph_and_session() as session:
        model = Model()
        saver = train.Saver([model.tables[1]])
        harness.initialize(session)
        model.train(session, range(2))
        path = saver.save(session, str(tmp_path / "model"))
        before = model.state(session)
        model.train(session, range(2, 4))
        after = model.state(session)
        saver.restore(session, path)
        assert_same(model.state(session), [*after[:2], *before[2:4], after[4]])


def test_saving_before_the_initializer_names_the_table(tmp_path):
    with harness.graph_and_session() as session:
        model = Model()
        session.run(model.kernel.initializer)
        with pytest.raises(tf.errors.FailedPreconditionError, match="not initialized"):
            model.saver.save(session, str(tmp_path / "model"))


def test_restoring_before_init_names_init(tmp_path):
    with harness.graph_and_session() as session:
        model = Model()
        harness.initialize(session)
        path = model.saver.save(session, str(tmp_path / "model"))
        with v1.Session() as other, pytest.raises(tf.errors.FailedPreconditionError, match="sok.Init"):
            model.saver.restore(other, path)


def test_a_damaged_checkpoint_leaves_the_tables_alone(tmp_path):
    with harness.graph_and_session() as session:
        model = Model("adagrad")
        harness.initialize(session)
        model.train(session, range(2))
        path = model.saver.save(session, str(tmp_path / "model"))
        model.train(session, range(2, 4))
        tables = model.state(session)[:4]
        (data,) = (name for name in os.listdir(tmp_path) if ".data-" in name)
        content = bytearray((tmp_path / data).read_bytes())
        content[:] = bytes(byte ^ 0xFF for byte in content)
        (tmp_path / data).write_bytes(content)
        with pytest.raises(tf.errors.DataLossError, match=str(tmp_path)):
            model.saver.restore(session, path)
        assert_same(model.state(session)[:4], tables)


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
        before = harness.table_contents(session, model.tables[0])
        with pytest.raises(tf.errors.ResourceExhaustedError, match="user/table.*4"):
            model.saver.restore(session, path)
        assert_same(harness.table_contents(session, model.tables[0]), before)
