"""MonitoredTrainingSession over ranks: ranks end if one is killed, and save by the clock of the first."""

import os
import signal
import types

import pytest
import tensorflow as tf

import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver import agreed_timer


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
