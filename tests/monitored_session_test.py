"""Embedding variables in MonitoredTrainingSession: initialized, saved by its hooks, and restored."""

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok

v1 = tf.compat.v1
train = v1.train


class Model:
    """A layer that a monitored session initializes, for which it runs the op of sok.Init."""

    def __init__(self):
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        self.global_step = train.get_or_create_global_step()
        layer = sok.All2AllDenseEmbedding(100, 2, 1, 1, dynamic_input=True, name="layer")
        self.table = layer.embedding_variable
        self.keys = tf.math.floormod(self.global_step * 7 + tf.range(6, dtype=tf.int64), 20)
        self.rows = layer(self.keys)
        optimizer = sok.tf.keras.optimizers.LazyAdamOptimizer(0.1)
        self.step = optimizer.minimize(tf.reduce_sum(tf.square(self.rows)), global_step=self.global_step)
        self.reader = harness.TableReader(self.table)

    def contents(self, session):
        """(keys, rows) of the table, by key."""
        [(keys, rows)] = self.reader.read(session)
        order = np.argsort(keys)
        return keys[order], rows[order]


def run(steps, **arguments):
    """(global step, table) after some steps of a monitored session in a new graph."""
    with tf.Graph().as_default():
        model = Model()
        with train.MonitoredTrainingSession(**arguments) as session:
            for _ in range(steps):
                session.run(model.step)
            return session.run(model.global_step), model.contents(session)


def test_init_is_no_part_of_a_step():
    with tf.Graph().as_default():
        model = Model()
        assert model.table.initializer.control_inputs
        assert not model.table.handle.op.control_inputs


def test_variables_are_initialized_by_the_session():
    step, (keys, rows) = run(3)
    assert step == 3
    np.testing.assert_array_equal(keys, [*range(6), *range(7, 13), *range(14, 20)])
    assert rows.shape == (18, 2) and np.all(np.isfinite(rows))


def test_a_scaffold_of_the_users_initializes():
    with tf.Graph().as_default():
        model = Model()
        scaffold = train.Scaffold(
            init_op=v1.global_variables_initializer(), ready_op=v1.report_uninitialized_variables()
        )
        with train.MonitoredTrainingSession(scaffold=scaffold) as session:
            for _ in range(3):
                session.run(model.step)
            _, rows = model.contents(session)
    np.testing.assert_array_equal(rows, run(3)[1][1])


def test_without_init_a_session_raises_an_error():
    with tf.Graph().as_default():
        sok.EmbeddingVariable("lonely_table", 2)
        train.get_or_create_global_step()
        with pytest.raises(tf.errors.FailedPreconditionError, match="lonely_table.*sok.Init"):
            train.MonitoredTrainingSession()


def test_a_second_session_goes_on_where_the_first_ended(tmp_path):
    directory = str(tmp_path)
    assert run(3, checkpoint_dir=directory, save_checkpoint_secs=600)[0] == 3
    assert train.latest_checkpoint(directory).endswith("model.ckpt-3")
    step, (keys, rows) = run(4, checkpoint_dir=directory, save_checkpoint_secs=600)
    assert step == 7
    _, (want_keys, want_rows) = run(7)
    np.testing.assert_array_equal(keys, want_keys)
    np.testing.assert_array_equal(rows, want_rows)


def test_the_checkpoint_hook_saves_on_its_steps(tmp_path):
    directory = str(tmp_path)
    hook = train.CheckpointSaverHook(directory, save_steps=2)
    with tf.Graph().as_default():
        model = Model()
        with train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(5):
                session.run(model.step)
            want = model.contents(session)
    assert train.latest_checkpoint(directory).endswith("model.ckpt-5")
    step, contents = run(0, checkpoint_dir=directory, save_checkpoint_secs=600)
    assert step == 5
    harness.assert_equal_arrays(contents, want)


def test_a_saver_takes_no_monitored_session(tmp_path):
    """As without tables."""
    with tf.Graph().as_default():
        Model()
        saver = train.Saver()
        with train.MonitoredTrainingSession() as session:
            with pytest.raises(TypeError, match="must be a Session"):
                saver.save(session, str(tmp_path / "model"))
    assert not list(tmp_path.iterdir())


def test_a_session_recovers_from_a_failure(tmp_path):
    """After an aborted step, the session is made again from its last checkpoint, including tables."""
    failures = [True]

    class Fail(train.SessionRunHook):
        def before_run(self, run_context):
            if failures and run_context.session.run(train.get_global_step()) == 4:
                failures.clear()
                raise tf.errors.AbortedError(None, None, "a worker was lost")

    with tf.Graph().as_default():
        model = Model()
        arguments = {"checkpoint_dir": str(tmp_path), "save_checkpoint_steps": 2}
        with train.MonitoredTrainingSession(hooks=[Fail()], **arguments) as session:
            while session.run(model.global_step) < 6:
                session.run(model.step)
            step, (keys, rows) = session.run(model.global_step), model.contents(session)
    assert not failures
    _, (want_keys, want_rows) = run(int(step))
    np.testing.assert_array_equal(keys, want_keys)
    np.testing.assert_array_equal(rows, want_rows)
