"""A training process that is killed at any point of a save leaves a checkpoint that restores exactly.

SOK_TEST_KILLS and SOK_TEST_RANK_KILLS say how often it is killed.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import tensorflow as tf

import harness
import ranks
import sparse_operation_kit as sok
from sparse_operation_kit.core.communicator import communicator

train = tf.compat.v1.train
KEYS = 5000
KILLS = int(os.environ.get("SOK_TEST_KILLS", "36"))
RANK_KILLS = int(os.environ.get("SOK_TEST_RANK_KILLS", "5"))


def _touched(step: int) -> np.ndarray:
    """The keys whose rows step `step` adds 1 to."""
    return np.arange(step * 17, step * 17 + 600) % KEYS


def _expected(step: int) -> np.ndarray:
    """What the rows of all keys are after `step` steps."""
    counts = np.zeros(KEYS, np.float32)
    for one in range(step):
        counts[_touched(one)] += 1
    return counts


class Model:
    def __init__(self):
        self.keys = tf.compat.v1.placeholder(tf.int64, [None])
        self.tables = [
            sok.EmbeddingVariable(f"table_{i}", dim, initializer=0.0) for i, dim in enumerate((4, 8))
        ]
        self.rows = [tf.nn.embedding_lookup(table, self.keys)[:, 0] for table in self.tables]
        self.step = train.get_or_create_global_step()
        every_row = [tf.nn.embedding_lookup(table, self.keys) for table in self.tables]
        # Each rank gives its part of the gradient.
        loss = -tf.add_n([tf.reduce_sum(rows) for rows in every_row]) / communicator().size
        optimizer = train.GradientDescentOptimizer(1.0)
        self.train = optimizer.minimize(loss, global_step=self.step, var_list=self.tables)
        self.saver = train.Saver(max_to_keep=2)

    def restore(self, session, directory):
        """Restores the latest checkpoint, and checks that it is exactly that of its step."""
        latest = train.latest_checkpoint(directory)
        if latest is None:
            harness.initialize(session)
            return 0
        self.saver.restore(session, latest)
        step = session.run(self.step)
        assert latest.endswith(f"-{step}"), (latest, step)
        for rows in session.run(self.rows, {self.keys: np.arange(KEYS)}):
            np.testing.assert_array_equal(rows, _expected(step))
        return int(step)

    def go_on(self, session, directory, step):
        """Trains and saves until the process is killed."""
        while True:
            session.run(self.train, {self.keys: _touched(step)})
            step += 1
            self.saver.save(session, f"{directory}/model", global_step=step, write_meta_graph=step % 2 == 0)


def _child(directory: str, ready: int) -> None:
    with harness.graph_and_session() as session:
        model = Model()
        step = model.restore(session, directory)
        os.write(ready, b"%d\n" % step)
        model.go_on(session, directory, step)


def _serve(directory: str, kills: int) -> None:
    """Starts and kills one process after the other: forked, as TensorFlow takes seconds to import."""
    draw = random.Random(2)
    step = -1
    for _ in range(kills + 1):
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _child(directory, sender)
            finally:
                os._exit(1)
        os.close(sender)
        with os.fdopen(receiver) as lines:
            restored = lines.readline()
            assert restored, f"restoring after step {step} failed: see above"
            assert int(restored) >= step, (restored, step)
            step = int(restored)
            time.sleep(draw.uniform(0, 0.25))
            os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    print("steps", step)


def test_one_process(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = f"import checkpoint_kill_test as test; test._serve({str(tmp_path)!r}, {KILLS})"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60 + 20 * KILLS,
    )
    assert result.returncode == 0, result.stdout[-6000:]
    steps = int(result.stdout.split("steps")[-1])
    assert steps > KILLS // 3
    # What killed saves left goes at the end of the next one. Two folders at most have seen none: that of a
    # checkpoint whose removal was cut short, and that of the save that was killed next.
    folders, checkpoints = ({path.stem for path in tmp_path.glob(f"*.{kind}")} for kind in ("sok", "index"))
    assert checkpoints <= folders and len(folders - checkpoints) <= 2


def _run_rank(directory: str, seed: int) -> int:
    known = communicator()
    with harness.graph_and_session() as session:
        model = Model()
        step = model.restore(session, directory)
        print(f"restored {step}", flush=True)
        if seed < 0:
            return step
        draw = random.Random(seed * 100)
        moment = draw.uniform(0.2, 1.5)
        # Not all at once: what the others do until they are killed too must not harm either.
        delay = moment + random.Random(seed * 100 + known.rank + 1).uniform(0, 0.2)
        threading.Timer(delay, os.kill, [os.getpid(), signal.SIGKILL]).start()
        model.go_on(session, directory, step)
        return step


def test_two_ranks(tmp_path):
    directory = str(tmp_path)
    for seed in range(RANK_KILLS):
        job = ranks.launch(_run_rank, directory, seed, ranks=2)
        assert all("restored" in output for output in job.outputs), job.report()
        assert -signal.SIGKILL in job.returncodes and not job.timed_out, job.report()
    steps = ranks.run(_run_rank, directory, -1, ranks=2)
    assert steps[0] == steps[1] > 0
