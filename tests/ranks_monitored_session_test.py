"""MonitoredTrainingSession over ranks: if a rank is killed, the other ranks end."""

import os
import signal

import pytest
import tensorflow as tf

import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.ranks.communicator import communicator


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
