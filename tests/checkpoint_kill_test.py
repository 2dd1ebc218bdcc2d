"""A training process that is killed at any point of a save leaves a checkpoint that restores exactly.

SOK_TEST_KILLS and SOK_TEST_RANK_KILLS set how often processes are killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback

import numpy as np
import pytest
import tensorflow as tf

import forked
import harness
import ranks
import saved_files
import sparse_operation_kit as sok
from device_of_tests import sized
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder
from sparse_operation_kit.tables.storage_option import StorageOption, StorageType

KILLS = int(os.environ.get("SOK_TEST_KILLS", "12"))
RANK_KILLS = int(os.environ.get("SOK_TEST_RANK_KILLS", "4"))
train = tf.compat.v1.train
KEYS = 5000


def touched(step: int) -> np.ndarray:
    """The keys whose rows step `step` adds 1 to."""
    return np.arange(step * 17, step * 17 + 600) % KEYS


def expected(step: int) -> np.ndarray:
    """The expected rows of all keys after `step` steps."""
    counts = np.zeros(KEYS, np.float32)
    for one in range(step):
        counts[touched(one)] += 1
    return counts


class Model:
    """A training whose checkpoints can be checked without other data."""

    def __init__(self, memory: str | StorageOption = "device") -> None:
        """Builds the graph: two tables, whose rows count their steps, and two Savers."""
        self.keys = tf.compat.v1.placeholder(tf.int64, [None])
        self.tables = [
            sok.EmbeddingVariable(f"table_{i}", dim, initializer=0.0, memory=memory)
            for i, dim in enumerate((4, 8))
        ]
        self.rows = [tf.nn.embedding_lookup(table, self.keys)[:, 0] for table in self.tables]
        self.step = train.get_or_create_global_step()
        every_row = [tf.nn.embedding_lookup(table, self.keys) for table in self.tables]
        # Each rank contributes its part of the gradient.
        loss = -tf.add_n([tf.reduce_sum(rows) for rows in every_row]) / communicator().size
        optimizer = train.GradientDescentOptimizer(1.0)
        self.train = optimizer.minimize(loss, global_step=self.step, var_list=self.tables)
        self.saver = train.Saver(max_to_keep=2)
        self.incremental = train.Saver(max_to_keep=2, sharded=True, builder=IncrementalBuilder())

    def restore(self, session: tf.compat.v1.Session, directory: str) -> int:
        """Restores the latest checkpoint, checks that it has the rows of its step, and returns the step."""
        latest = train.latest_checkpoint(directory)
        if latest is None:
            harness.initialize(session)
            return 0
        self.saver.restore(session, latest)
        step = session.run(self.step)
        assert latest.endswith(f"-{step}"), (latest, step)
        for rows in session.run(self.rows, {self.keys: np.arange(KEYS)}):
            np.testing.assert_array_equal(rows, expected(step))
        return int(step)

    def go_on(
        self,
        session: tf.compat.v1.Session,
        directory: str,
        step: int,
        full_every: int = 1,
        told: int | None = None,
    ) -> None:
        """Trains and saves until the process is killed, with incremental checkpoints between full ones.

        Writes a line to the file `told` after each save.
        """
        while True:
            session.run(self.train, {self.keys: touched(step)})
            step += 1
            saver = self.saver if step % full_every == 0 else self.incremental
            saver.save(session, f"{directory}/model", global_step=step, write_meta_graph=step % 2 == 0)
            if told is not None:
                os.write(told, b"saved\n")


def _train(model: Model, init: tf.Operation, directory: str, full_every: int, told: int) -> None:
    with init.graph.as_default(), tf.compat.v1.Session() as session:
        session.run(init)
        step = model.restore(session, directory)
        os.write(told, b"%d\n" % step)
        model.go_on(session, directory, step, full_every, told)


def kill_again_and_again(
    directory: str, kills: int, draw: random.Random, full_every: int, rows_on_disk: bool = False
) -> int:
    """Starts and kills processes one after another; returns the step that the last one restored.

    With `rows_on_disk`, tables have memory for a few rows, and none of their files is left after a kill.

    Each is killed at most 0.25 s after its restore or its first save. Processes are forked with the graph,
    because importing TensorFlow and building a graph take seconds; so this process must not have run
    TensorFlow.
    """
    folder = os.path.join(directory, "rows")
    disk = StorageOption(StorageType.DRAM_SSDHASH, folder, [4096])
    with tf.Graph().as_default():
        init = sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        model = Model(disk if rows_on_disk else "device")
    step = -1
    for _ in range(kills + 1):
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _train(model, init, directory, full_every, sender)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(sender)
        with os.fdopen(receiver) as lines:
            restored = lines.readline()
            assert restored, f"restoring after step {step} failed: see above"
            assert int(restored) >= step, (restored, step)
            step = int(restored)
            # Often after a save, even on a slow machine, and often during the first save.
            if draw.random() < 0.5:
                lines.readline()
            time.sleep(draw.uniform(0, 0.25))
            os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        assert not rows_on_disk or os.listdir(folder) == []
    return step


_IN_MEMORY = [(1, False), (4, False)]


@pytest.mark.parametrize(
    ("full_every", "rows_on_disk"), sized(on_cpu=[*_IN_MEMORY, (4, True)], on_gpu=_IN_MEMORY)
)
def test_one_process(tmp_path, full_every, rows_on_disk):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    arguments = f"{str(tmp_path)!r}, {KILLS}, it.random.Random(2), {full_every}, {rows_on_disk}"
    code = f"import checkpoint_kill_test as it; print('steps', it.kill_again_and_again({arguments}))"
    result = forked.run_code(code, env=environment, timeout=60 + 20 * KILLS)
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    steps = int(result.stdout.split("steps")[-1])
    assert steps > KILLS // 4
    # The next save removes the leftovers of killed saves. Those of at most two can be left after that: of one
    # whose removal was interrupted, and of the last killed save.
    with_tables = set(saved_files.bases(tmp_path))
    checkpoints = {path.stem for path in tmp_path.glob("*.index") if ".sok-" not in path.stem}
    assert checkpoints <= with_tables
    if full_every == 1:
        assert len(with_tables - checkpoints) <= 2


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
        # Ranks are killed at different times: what the others do meanwhile must do no harm.
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
