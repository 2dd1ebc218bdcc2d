"""Savers over ranks, raw files and the hooks of MonitoredTrainingSession, have the rows of all ranks. While
another process saves, all fail and go on. Raw files of tables with keys of any dtype, and under other
names."""

from __future__ import annotations

import os
import signal
import time
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import saved_files
import sparse_operation_kit as sok
from same_length import zip_equal
from sparse_operation_kit.checkpoint import prefix_lock
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver import agreed_timer, checkpoint_save
from sparse_operation_kit.serving import session_exports

DIM = 3
KEYS = np.unique(np.concatenate([harness.HOSTILE_KEYS, np.arange(5000, dtype=np.int64) * 7 - 9000]))


def _trained(session: tf.compat.v1.Session) -> tuple[sok.EmbeddingVariable, tf.Tensor]:
    """A table with the rows of KEYS after a step, and a lookup of them all."""
    variable = sok.EmbeddingVariable("scope/table", DIM)
    rows = group.lookup_group([group.DenseLookup(variable, tf.constant(KEYS))])[0]
    # Every rank looks up all keys and contributes a part of their gradients.
    loss = tf.reduce_sum(tf.square(rows)) / communicator().size
    step = tf.compat.v1.train.AdagradOptimizer(0.5).minimize(loss)
    harness.initialize(session)
    session.run(step)
    return variable, rows


def _errors(folder: str) -> dict[str, str]:
    """The error messages, by case."""
    rank = communicator().rank
    saver = sok.Saver()
    with harness.graph_and_session() as session:
        variable, rows = _trained(session)
        assert session.run(saver.dump_to_file(variable, folder)) == b"OK"
        other_folder = os.path.join(folder, f"of_rank_{rank}")
        tries = {
            "missing": saver.restore_from_file(variable, os.path.join(folder, "nothing")),
            "not_shared": saver.dump_to_file(variable, other_folder),
            "rank_1_has_none": saver.restore_from_file(variable, folder if rank != 1 else other_folder),
        }
        before = session.run(rows)
        messages = {}
        for name, target in tries.items():
            try:
                session.run(target)
                messages[name] = "no error"
            except tf.errors.OpError as error:
                messages[name] = f"{type(error).__name__}: {error.message}"
        np.testing.assert_array_equal(session.run(rows), before)
    return messages


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory):
    checks = [_errors, _saved_steps, _save_where_another_does]
    folders = [str(tmp_path_factory.mktemp("saved")) for _ in checks]
    return ranks.run_checks(list(zip(checks, folders)), ranks=2)


def test_errors_of_one_rank_are_raised_on_all(of_two_ranks):
    for rank, messages in enumerate(of_two_ranks["_errors"]):
        assert messages["missing"].startswith("NotFoundError"), messages["missing"]
        assert "nothing/scope/table_keys.file" in messages["missing"]
        if rank == 1:
            assert "all ranks must see the directory" in messages["not_shared"]
            assert "NotFoundError" in messages["rank_1_has_none"]
        else:
            assert "rank 1 failed" in messages["not_shared"], messages["not_shared"]
            assert "rank 1 failed" in messages["rank_1_has_none"]


def _train(with_table):
    """Trains 40 steps in a monitored session; the last rank is killed at the tenth."""
    known = communicator()
    with tf.Graph().as_default():
        sok.Init(global_batch_size=known.size, seed=1)
        table = sok.EmbeddingVariable("table", dim=2, initializer=1.0)
        # Its gradient is a constant, whose allreduce TensorFlow might fold to run only once.
        loss = tf.reduce_sum(tf.Variable([1.0]))
        if with_table:
            loss += tf.reduce_sum(tf.nn.embedding_lookup(table, [known.rank]))
        optimizer = sok.DistributedOptimizer(tf.compat.v1.train.AdagradOptimizer(0.1), op="sum")
        step = optimizer.minimize(loss, tf.compat.v1.train.get_or_create_global_step())
        hooks = [sok.BroadcastGlobalVariablesHook()]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            for i in range(40):
                if i == 10 and known.rank == known.size - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                session.run(step)
                print(f"step {i}", flush=True)


@pytest.mark.parametrize("with_table", [False, True], ids=["dense", "table"])
def test_a_killed_rank_ends_the_others(with_table):
    job = ranks.launch(_train, with_table, ranks=2, timeout=100)
    assert job.returncodes == [1, -signal.SIGKILL], job.report()
    assert not job.timed_out  # the launcher waits 35 s for ranks that outlive a killed one
    # It stops at the step that the other rank did not take, and tells why.
    assert "step 9" in job.outputs[0] and "step 10" not in job.outputs[0], job.report()
    assert "Horovod has been shut down" in job.outputs[0]


def _saved_steps(folder):
    """Trains 12 steps, which take seconds of rank 0 and hours of the others; returns when ranks saved."""
    known = communicator()
    now = [0.0]
    agreed_timer.time = types.SimpleNamespace(time=lambda: now[0])
    saved = []

    class Listener(tf.compat.v1.train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            saved.append(global_step_value)

    with tf.Graph().as_default():
        sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        table = sok.EmbeddingVariable("table", dim=2, initializer=1.0)
        step = tf.compat.v1.train.get_or_create_global_step()
        rows = tf.nn.embedding_lookup(table, [known.rank])
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(rows, step)
        hook = tf.compat.v1.train.CheckpointSaverHook(folder, save_secs=4, listeners=[Listener()])
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(12):
                now[0] += 1.0 if known.rank == 0 else 3600.0
                session.run(train)
    return saved


def test_ranks_save_when_it_is_time_for_the_first(of_two_ranks):
    assert of_two_ranks["_saved_steps"] == [[0, 4, 8, 12]] * 2


def _save_where_another_does(folder):
    checkpoint_save._PATIENCE_SECONDS = 0.1
    prefix = f"{folder}/m"
    first = communicator().rank == 0
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("t", dim=2)
        rows = tf.nn.embedding_lookup(table, tf.constant([1, 2, 3], tf.int64))
        saver = tf.compat.v1.train.Saver()
        harness.initialize(session)
        before = session.run(rows)
        lock = prefix_lock.acquire(prefix, 0) if first else None
        with pytest.raises(tf.errors.FailedPreconditionError) as raised:
            saver.save(session, prefix)
        if first:
            assert f"Process {os.getpid()} on " in raised.value.message
            assert not [name for name in saved_files.files(prefix) if not name.endswith(".lock")]
            lock.release()
        # Ranks start a save together, so none starts before rank 0 has released its lock.
        saver.save(session, prefix)
        saver.restore(session, prefix)
        assert (session.run(rows) == before).all()
        return raised.value.message


def test_all_ranks_raise_and_go_on(of_two_ranks):
    messages = of_two_ranks["_save_where_another_does"]
    assert "is saving to" in messages[0]
    assert all("rank 0" in message for message in messages[1:]), messages


v1 = tf.compat.v1
KEYS_LOCK = np.arange(8)


def _model_fn(features, labels, mode):
    del labels
    sok.Init(global_batch_size=len(KEYS_LOCK), seed=harness.SEED)
    table = sok.EmbeddingVariable("scope/table", 2)
    rows = tf.nn.embedding_lookup(table, features["ids"])
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"rows": rows})
    loss = tf.reduce_sum(tf.square(rows))
    step = v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def _input_fn():
    return tf.data.Dataset.from_tensors({"ids": KEYS_LOCK}).repeat(4)


def _receiver():
    ids = v1.placeholder(tf.int64, [None])
    return tf.estimator.export.ServingInputReceiver({"ids": ids}, {"ids": ids})


def _export(folder):
    """Trains, exports into `folder`, and returns the rows of KEYS."""
    estimator = tf.estimator.Estimator(_model_fn, os.path.join(folder, "model"))
    exporters = [tf.estimator.FinalExporter("final", _receiver)]
    if communicator().rank == 0:
        exporters.append(tf.estimator.LatestExporter("latest", _receiver))  # As if its results were better.
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(_input_fn, max_steps=3),
        tf.estimator.EvalSpec(_input_fn, steps=1, exporters=exporters),
    )
    own = estimator.export_saved_model(os.path.join(folder, "all"), _receiver)
    assert Path(os.fsdecode(own)).is_dir() and Path(os.fsdecode(own)).parent.name == "all"
    stock = os.path.join(folder, "stock")
    path = sok.serving.export_saved_model(estimator, stock, _receiver, absent="zeros")
    with pytest.raises(Exception, match="absent" if communicator().rank == 0 else "another rank failed"):
        sok.serving.export_saved_model(estimator, stock, _receiver)
    rows = np.stack([one["rows"] for one in estimator.predict(_input_fn)])[: len(KEYS_LOCK)]
    _export_apart(estimator, folder)
    return rows, os.fsdecode(path)


def _wait_for(file):
    while not file.exists():
        time.sleep(0.1)


def _export_apart(estimator, folder):
    """Rank 0 exports and gives up before the other rank does."""
    raised = [Path(folder, f"raised_{rank}") for rank in range(2)]
    if communicator().rank == 1:
        _wait_for(raised[0])
    session_exports._PATIENCE_SECONDS = 1
    with pytest.raises(tf.errors.FailedPreconditionError, match="not all 2 ranks have called it"):
        estimator.export_saved_model(os.path.join(folder, "apart"), _receiver)
    raised[communicator().rank].touch()
    _wait_for(raised[1])  # Horovod ends with the first rank.


@pytest.mark.skipif(not hasattr(tf, "estimator"), reason=f"TensorFlow {tf.__version__} has no Estimator")
def test_rank_0_exports_all_rows(tmp_path):
    of_ranks, paths = zip(*ranks.run(_export, str(tmp_path), ranks=2))
    np.testing.assert_array_equal(*of_ranks)
    assert paths[0] == paths[1]
    found = saved_files.serve_model(Path(paths[0]), {"ids": KEYS_LOCK.tolist()}, "sparse_operation_kit")
    np.testing.assert_array_equal(found["serving_default"]["rows"], of_ranks[0])
    folders = [tmp_path / "model" / "export" / name for name in ("final", "latest")]
    for folder in [*folders, tmp_path / "all"]:
        (exported,) = folder.iterdir()
        np.testing.assert_array_equal(harness.served(str(exported), ids=KEYS_LOCK)["rows"], of_ranks[0])


KEYS_RAW = {
    tf.int64: [0, -1, 2**31, 2**40, 2**63 - 1, -(2**63)],
    tf.int32: [0, -1, 7, 2**31 - 1, -(2**31)],
    tf.uint32: [0, 7, 2**31, 2**32 - 1],
}


def rows_of(keys):
    """A row for each key that differs from its initial row."""
    return np.array([[key % 1009, key % 13, 1.5] for key in keys], np.float32)


def write_files(folder, keys, numpy_dtype, name="table"):
    np.array(keys, numpy_dtype).tofile(folder / f"{name}_keys.file")
    rows_of(keys).tofile(folder / f"{name}_values.file")


def restored(folder, key_dtype, **kwargs):
    """The rows of a table by key, after a restore."""
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable("table", DIM, key_dtype=key_dtype)
        restore = sok.Saver().restore_from_file(table, str(folder), **kwargs)
        exported = table.keys_and_rows()
        harness.initialize(session)
        assert session.run(restore) == b"OK"
        keys, rows = session.run(exported)
        return dict(zip_equal(keys.tolist(), rows.tolist()))


def expected(keys):
    return dict(zip_equal(keys, rows_of(keys).tolist()))


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize("key_dtype", KEYS_RAW)
def test_files_without_rows(tmp_path, key_dtype):
    write_files(tmp_path, [], np.int64)
    (tmp_path / "table_values.file").write_bytes(b"")
    assert restored(tmp_path, key_dtype) == {}


def test_missing_files_say_which_and_how_others_are_found(tmp_path):
    write_files(tmp_path, [1, 2], np.int64, "EmbeddingVariable_1")
    with pytest.raises(tf.errors.NotFoundError) as error:
        restored(tmp_path, tf.int64)
    for named in (f"{tmp_path}/table_keys.file", f"{tmp_path}/table_values.file", "name='EmbeddingVariable'"):
        assert named in error.value.message
    assert restored(tmp_path, tf.int64, name="EmbeddingVariable_1") == expected([1, 2])
    with pytest.raises(tf.errors.NotFoundError, match="EmbeddingVariable_values.file"):
        restored(tmp_path, tf.int64, name="EmbeddingVariable")


def _on_a_rank(folder):
    """Restores the original's files, checks the rows, and dumps them.

    Returns by key dtype this rank's number of rows.
    """
    counts = {}
    for key_dtype, keys in KEYS_RAW.items():
        of_dtype = f"{folder}/{key_dtype.name}"
        with harness.graph_and_session() as session:
            table = sok.EmbeddingVariable("table", DIM, key_dtype=key_dtype)
            lookup = tf.nn.embedding_lookup(table, tf.constant(keys, key_dtype))
            saver = sok.Saver()
            restore = saver.restore_from_file(table, of_dtype, name="EmbeddingVariable")
            dump = saver.dump_to_file(table, of_dtype)
            harness.initialize(session)
            session.run(restore)
            np.testing.assert_array_equal(session.run(lookup), rows_of(keys))
            counts[key_dtype.name] = int(session.run(table.size()))
            session.run(dump)
    return counts


@pytest.mark.cases_on_gpu(2)
@pytest.mark.parametrize("size", [1, 3])
def test_on_ranks(tmp_path, size):
    for key_dtype, keys in KEYS_RAW.items():
        (tmp_path / key_dtype.name).mkdir()
        write_files(tmp_path / key_dtype.name, keys, key_dtype.as_numpy_dtype, "EmbeddingVariable")
    for rank, counts in enumerate(ranks.run(_on_a_rank, str(tmp_path), ranks=size)):
        for key_dtype, keys in KEYS_RAW.items():
            assert counts[key_dtype.name] == sum(key % 2**64 % size == rank for key in keys)
    for key_dtype, keys in KEYS_RAW.items():
        written = np.fromfile(tmp_path / key_dtype.name / "table_keys.file", key_dtype.as_numpy_dtype)
        assert sorted(written.tolist()) == sorted(keys)
        rows = np.fromfile(tmp_path / key_dtype.name / "table_values.file", "<f4").reshape(-1, DIM)
        np.testing.assert_array_equal(rows, rows_of(written.tolist()))
