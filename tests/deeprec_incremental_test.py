"""DeepRec's arguments and classes for incremental checkpoints; any Saver restores what they save."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
from sparse_operation_kit import deeprec

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def installed():
    """Installs DeepRec's names, and gives each test a graph."""
    deeprec.install()
    with tf.Graph().as_default():
        yield


def model(tables=True):
    """Returns the step; each step touches one new row, the first step a hundred."""
    step = v1.train.get_or_create_global_step()
    weight = v1.get_variable("weight", initializer=1.0)
    loss = tf.square(weight)
    if tables:
        table = deeprec.get_embedding_variable("table", 3, initializer=tf.ones_initializer())
        keys = tf.where(tf.equal(step, 0), tf.range(100, dtype=tf.int64), tf.fill([100], step))
        loss += tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, keys)))
    return v1.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)


def weight_in(session):
    return session.run(v1.trainable_variables("weight")[0])


def kind_of(prefix):
    """Returns "full" or "delta", the kind of the table's checkpoint."""
    return saved_files.entry(prefix, "table")["kind"]


def kinds(directory):
    """Returns the kinds of a directory's checkpoints, by the step."""
    prefixes = [index.with_suffix("") for index in pathlib.Path(directory).glob("*.index")]
    return dict(sorted((int(prefix.name.rpartition("-")[2]), kind_of(prefix)) for prefix in prefixes))


def rows_after(prefix):
    with harness.graph_and_session() as session:
        model()
        v1.train.Saver().restore(session, str(prefix))
        (table,) = v1.get_collection(v1.GraphKeys.EMBEDDING_VARIABLES)
        keys, rows = session.run(table.keys_and_rows())
        order = np.argsort(keys)
        return keys[order], rows[order], weight_in(session)


def restores_like(prefix, other):
    harness.assert_equal_arrays(rows_after(prefix), rows_after(other))


def of_the_same_step(directory, steps):
    """Trains `steps` steps and saves one full checkpoint; returns its prefix."""
    with harness.graph_and_session() as session:
        step = model()
        session.run(v1.global_variables_initializer())
        for _ in range(steps):
            session.run(step)
        return v1.train.Saver().save(session, str(directory / "whole"))


def test_a_monitored_session(tmp_path):
    """The interval between incremental checkpoints is shorter than a step."""
    step = model()
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path),
        save_checkpoint_secs=None,
        save_checkpoint_steps=1000,
        save_incremental_checkpoint_secs=1e-6,
    ) as session:
        for _ in range(3):
            session.run(step)
    found = kinds(tmp_path)
    assert "delta" in found.values(), found
    delta = min(step for step, kind in found.items() if kind == "delta")
    assert v1.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-3")
    restores_like(tmp_path / f"model.ckpt-{delta}", of_the_same_step(tmp_path, delta))


def test_positional_arguments_and_other_hooks_stay(tmp_path):
    ends = []

    class Hook(v1.train.SessionRunHook):
        def end(self, session):
            ends.append(session)

    step = model()
    with v1.train.MonitoredTrainingSession(
        "", True, str(tmp_path), None, [Hook()], save_incremental_checkpoint_secs=3600
    ) as session:
        session.run(step)
    assert len(ends) == 1 and kinds(tmp_path) == {0: "full", 1: "full"}


def test_without_a_directory_nothing_is_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = model()
    with v1.train.MonitoredTrainingSession(save_incremental_checkpoint_secs=1e-6) as session:
        session.run(step)
    assert not list(tmp_path.iterdir())


def test_without_tables_full_checkpoints_have_everything(tmp_path, caplog):
    step = model(tables=False)
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_incremental_checkpoint_secs=1e-6
    ) as session:
        session.run(step)
    assert "no embedding variable" in caplog.text
    assert v1.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-1")


@pytest.mark.parametrize(
    "seconds, error", [("20", TypeError), (True, TypeError), (0, ValueError), (-1, ValueError)]
)
def test_seconds_that_are_none(tmp_path, seconds, error):
    with pytest.raises(error, match="save_incremental_checkpoint_secs"):
        v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_incremental_checkpoint_secs=seconds
        )
    with pytest.raises(error, match="incremental_save_secs"):
        v1.train.CheckpointSaverHook(str(tmp_path), save_steps=1, incremental_save_secs=seconds)


def test_a_hook_saves_both_kinds(tmp_path):
    """As in the model_fn of DeepRec's documents: a Scaffold, a Saver and a CheckpointSaverHook."""
    step = model()
    scaffold = v1.train.Scaffold(
        saver=v1.train.Saver(sharded=True, incremental_save_restore=True), incremental_save_restore=True
    )
    hook = v1.train.CheckpointSaverHook(
        str(tmp_path), save_steps=3, scaffold=scaffold, incremental_save_secs=1e-6
    )
    with v1.train.MonitoredSession(v1.train.ChiefSessionCreator(scaffold), [hook]) as session:
        for _ in range(5):
            session.run(step)
    found = kinds(tmp_path)
    assert found[0] == found[3] == "full" and found[2] == "delta", found
    restores_like(tmp_path / "model.ckpt-2", of_the_same_step(tmp_path, 2))


@pytest.mark.skipif(not hasattr(v1, "estimator"), reason="this TensorFlow has no Estimator")
def test_an_estimator(tmp_path):
    def model_fn(features, labels, mode):
        del features, labels
        return v1.estimator.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=model())

    config = v1.estimator.RunConfig(
        model_dir=str(tmp_path), save_checkpoints_steps=1000, save_incremental_checkpoint_secs=1e-6
    )
    data = lambda: tf.data.Dataset.from_tensors(({"x": [1.0]}, [1.0])).repeat()  # noqa: E731
    v1.estimator.Estimator(model_fn, config=config.replace(keep_checkpoint_max=7)).train(data, steps=4)
    found = kinds(tmp_path)
    assert "delta" in found.values(), found
    delta = min(step for step, kind in found.items() if kind == "delta")
    restores_like(tmp_path / f"model.ckpt-{delta}", of_the_same_step(tmp_path, delta))


@pytest.mark.parametrize("folder", ["", ".incremental_checkpoint/"])
def test_an_incremental_saver(tmp_path, folder):
    """Chains may lead to another directory, and the full Saver removes nothing that they need."""
    from tensorflow.python.training import incremental_saver

    with harness.graph_and_session() as session:
        step = model()
        full = v1.train.Saver(sharded=True, incremental_save_restore=True, max_to_keep=1)
        incremental = incremental_saver._get_incremental_saver(True, full)
        session.run(v1.global_variables_initializer())
        prefixes = []
        for number in range(1, 5):
            session.run(step)
            full.save(session, str(tmp_path / "model.ckpt"), global_step=number, write_state=True)
            session.run(step)
            path = str(tmp_path / f"{folder}incr.ckpt")
            prefixes.append(incremental.incremental_save(session, path, global_step=number))
        assert incremental.last_incr_checkpoints == prefixes
        of_incremental = [kind_of(prefix) for prefix in prefixes]
        assert of_incremental == ["full", "delta", "delta", "delta"]
        before = weight_in(session)
        session.run(v1.global_variables_initializer())
        incremental.incremental_restore(session, full.last_checkpoints[-1], prefixes[-1])
        assert weight_in(session) == before
    for number, prefix in enumerate(prefixes, 1):
        restores_like(prefix, of_the_same_step(tmp_path, 2 * number))


def test_after_a_save_that_did_not_end_the_next_one_is_full(tmp_path):
    """Its ranks may disagree about the last checkpoint."""
    from tensorflow.python.training import incremental_saver

    with harness.graph_and_session() as session:
        step = model()
        saver = incremental_saver._get_incremental_saver(True, None)
        session.run(v1.global_variables_initializer())
        prefixes = []
        for number in range(1, 5):
            session.run(step)
            if number == 3:
                # As in a run that is interrupted before the tables are told of its end.
                names = saver.saver_def
                session.run(names.save_tensor_name, {names.filename_tensor_name: str(tmp_path / "other")})
            prefixes.append(saver.incremental_save(session, str(tmp_path / "incr.ckpt"), global_step=number))
        assert [kind_of(prefix) for prefix in prefixes] == ["full", "delta", "full", "delta"]
    restores_like(prefixes[-1], of_the_same_step(tmp_path, 4))


def test_no_incremental_saver_where_none_is_wanted():
    from tensorflow.python.training import incremental_saver

    model()
    assert incremental_saver._get_incremental_saver(False, v1.train.Saver()) is None


def test_an_incremental_saver_of_a_graph_without_tables(tmp_path):
    with harness.graph_and_session() as session:
        step = model(tables=False)
        saver = deeprec.IncrementalSaver()
        session.run(v1.global_variables_initializer())
        session.run(step)
        trained = weight_in(session)
        prefix = saver.incremental_save(session, str(tmp_path / "model.ckpt"), 1)
        session.run(v1.global_variables_initializer())
        saver.incremental_restore(session, None, prefix)
        assert weight_in(session) == trained


def test_uninstalled_arguments_are_unknown():
    deeprec.uninstall()
    try:
        with tf.Graph().as_default():
            v1.get_variable("weight", initializer=1.0)
            with pytest.raises(TypeError, match="incremental_save_restore"):
                v1.train.Saver(incremental_save_restore=True)
            with pytest.raises(TypeError, match="save_incremental_checkpoint_secs"):
                v1.train.MonitoredTrainingSession(save_incremental_checkpoint_secs=1)
    finally:
        deeprec.install()
