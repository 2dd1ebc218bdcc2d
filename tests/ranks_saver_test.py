"""Savers over ranks, raw files and the hooks of MonitoredTrainingSession, have the rows of all ranks."""

from __future__ import annotations

import os
import signal
import types

import numpy as np
import pytest
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.lookup import group
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver import agreed_timer

DIM = 3
KEYS = np.unique(np.concatenate([harness.HOSTILE_KEYS, np.arange(5000, dtype=np.int64) * 7 - 9000]))


def _rank() -> int:
    import horovod.tensorflow as hvd

    hvd.init()
    return hvd.rank()


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
    rank = _rank()
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


def test_errors_of_one_rank_are_raised_on_all(tmp_path):
    for rank, messages in enumerate(ranks.run(_errors, str(tmp_path), ranks=2)):
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
        sok.Init(global_batch_size=known.size, seed=1)
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


def test_ranks_save_when_it_is_time_for_the_first(tmp_path):
    of_first, of_other = ranks.run(_saved_steps, str(tmp_path), ranks=2)
    assert of_first == of_other == [0, 4, 8, 12]
