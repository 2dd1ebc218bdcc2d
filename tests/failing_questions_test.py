"""Every question that a save asks about files fails once: nothing that a checkpoint needs is removed.

A network file system answers ESTALE or EIO where a file is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

import numpy as np
import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import reader
from sparse_operation_kit.checkpoint.errors import UnansweredError

v1 = tf.compat.v1
KEYS = np.arange(6)
# More than a save asks.
MOST = 200


class Questions:
    """Makes the call with a given number, of those that ask about files of a folder, fail once.

    Calls of the library count as one each, whatever they ask, and change nothing if they fail.
    """

    def __init__(self, folder, monkeypatch):
        self.folder, self.number, self.asked = str(folder), 0, 0
        for name in ("stat", "lstat"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))
        monkeypatch.setattr(os, "listdir", self._failing(os.listdir))
        for name in ("open_saved", "remove_checkpoint", "remove_leftovers", "remove_retired"):
            monkeypatch.setattr(reader, name, self._failing(getattr(reader, name), UnansweredError))

    def _failing(self, original, error=None):
        def ask(path, *args, **options):
            below = isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(self.folder)
            if self.number and (below or options.get("dir_fd") is not None):
                self.asked += 1
                if self.asked == self.number:
                    stale = OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
                    raise stale if error is None else error(path, str(stale))
            return original(path, *args, **options)

        return ask


class Job:
    """A table and its rows after some steps, with a Saver of one kind that keeps one checkpoint."""

    def __init__(self, folder, incremental):
        init = sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
        table = sok.EmbeddingVariable("table", dim=2, initializer=0.0)
        self.keys = v1.placeholder(tf.int64, [None])
        self.step = v1.train.get_or_create_global_step()
        loss = -tf.reduce_sum(tf.nn.embedding_lookup(table, self.keys))
        self.train = v1.train.GradientDescentOptimizer(1.0).minimize(loss, global_step=self.step)
        (self.read,) = sok.group_embedding_lookup([table], [KEYS], training=False)
        self.folder, self.hook = str(folder), None
        if incremental:
            self.hook = sok.IncrementalCheckpointHook(self.folder, save_steps=1, max_to_keep=1)
            self.hook.begin()
        self.saver = v1.train.Saver(max_to_keep=1)
        self.session = v1.Session(config=harness.session_config())
        self.session.run([init, v1.global_variables_initializer()])
        if incremental:
            self.hook.after_create_session(self.session, None)

    def save(self):
        """A step, and then a checkpoint; returns the rows that it has."""
        step = self.session.run(self.step)
        self.session.run(self.train, {self.keys: KEYS[: 1 + step % 5]})
        if self.hook is not None:
            self.hook._save(self.session, step + 1)
        else:
            self.saver.save(self.session, f"{self.folder}/model.ckpt", self.step)
        return self.session.run(self.read)

    def check_latest(self, rows):
        """Restores the latest checkpoint, which has one of the given states of the rows."""
        self.saver.restore(self.session, tf.train.latest_checkpoint(self.folder))
        found = self.session.run(self.read)
        assert any(np.array_equal(found, one) for one in rows), found


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
def test_a_question_without_an_answer_removes_nothing(tmp_path, monkeypatch, incremental):
    with tf.Graph().as_default():
        job = Job(tmp_path, incremental)
        questions = Questions(tmp_path, monkeypatch)
        before = [job.save() for _ in range(3)][-1]
        for number in range(1, MOST):
            questions.number, questions.asked = number, 0
            try:
                states = [job.save()]
            except tf.errors.OpError:
                states = [before, job.session.run(job.read)]
            asked, questions.number = questions.asked, 0
            if asked < number:
                break
            job.check_latest(states)
            before = [job.save() for _ in range(2)][-1]
            job.check_latest([before])
        assert 10 < number < MOST
        assert len(list(tmp_path.glob("*.index"))) <= 2


@contextlib.contextmanager
def few_descriptors(free):
    """Leaves the process this many descriptors, so that all further files cannot be opened."""
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    limit = next(number for number in range(1 << 20) if len(set(range(number)) - used) == free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
def test_files_that_cannot_be_opened_lose_nothing(tmp_path, incremental):
    """In Python, the library and TensorFlow, from some point of a save on."""
    with tf.Graph().as_default():
        job = Job(tmp_path, incremental)
        before = [job.save() for _ in range(3)][-1]
        succeeded = 0
        for free in range(MOST):
            with few_descriptors(free):
                try:
                    states = [job.save()]
                    succeeded += 1
                except (tf.errors.OpError, OSError):
                    states = [before, job.session.run(job.read)]
            job.check_latest(states)
            before = [job.save() for _ in range(2)][-1]
            job.check_latest([before])
            assert not list(tmp_path.glob("*.lock"))
            # Enough for everything.
            if succeeded == 3:
                break
        assert 2 < free < 30
        assert len(list(tmp_path.glob("*.index"))) <= 2
