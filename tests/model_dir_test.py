# Not on GPUs: files, which are the same: see gpu_checkpoints_test
"""A directory of checkpoints: TensorFlow's files, one for each rank, no folder; and the lock of a prefix."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import harness
import saved_files
import sparse_operation_kit as sok
from sparse_operation_kit.checkpoint import cli, prefix_lock
from sparse_operation_kit.checkpoint.prefix_lock import PrefixInUseError, acquire, try_acquire
from sparse_operation_kit.compat.internals import saveable_object
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder

session = harness.session
train = tf.compat.v1.train
KEYS = np.arange(8)


class Model:
    """A table of which `train` changes the rows of given keys, and a global step."""

    def __init__(self, session, **arguments):
        self.session = session
        self.keys = tf.compat.v1.placeholder(tf.int64, [None])
        self.table = sok.EmbeddingVariable("scope/t", dim=2)
        self.rows = tf.nn.embedding_lookup(self.table, self.keys)
        self.step = train.get_or_create_global_step()
        optimizer = train.AdagradOptimizer(0.1)
        self.train = optimizer.minimize(tf.reduce_sum(self.rows), global_step=self.step)
        self.saver = train.Saver(**arguments)
        harness.initialize(session)
        self.go_on()

    def go_on(self, keys=KEYS):
        self.session.run(self.train, {self.keys: keys})

    def state(self):
        return self.session.run(self.rows, {self.keys: KEYS})

    def assert_restores(self, prefix, want):
        self.go_on()
        self.saver.restore(self.session, str(prefix))
        np.testing.assert_array_equal(self.state(), want)


def exported_models(model_dir):
    """The exported models in a directory, as the programs of DeepRec's model zoo find them."""
    return [name for name in os.listdir(model_dir) if os.path.isdir(os.path.join(model_dir, name))]


SAVERS = {
    "one file": {},
    "sharded": {"sharded": True},
    "incremental": {"sharded": True, "builder": IncrementalBuilder},
}


@pytest.mark.parametrize("kind", SAVERS)
@pytest.mark.parametrize("write_meta_graph", [True, False])
def test_a_save_makes_no_folder(tmp_path, session, kind, write_meta_graph):
    arguments = dict(SAVERS[kind])
    builder = arguments.pop("builder", None)
    model = Model(session, max_to_keep=2, **arguments, **({"builder": builder()} if builder else {}))
    for _ in range(3):
        model.go_on()
        last = model.saver.save(
            session, str(tmp_path / "model.ckpt"), global_step=model.step, write_meta_graph=write_meta_graph
        )
        assert exported_models(tmp_path) == []
    meta = {"meta"} if write_meta_graph else set()
    suffixes = {name[len(os.path.basename(last)) + 1 :] for name in saved_files.files(last)}
    assert suffixes == meta | {"data-00000-of-00002", "data-00001-of-00002", "index"}
    deleted = {"deleted"} if kind == "incremental" else set()
    found = tf.train.load_checkpoint(last).get_variable_to_shape_map()
    arrays = {name.rpartition("/")[2] for name in found if name.startswith("scope/t#0/")}
    assert arrays == deleted | {"keys", "slot-accumulator", "values"}
    assert saved_files.counted_by(last) == ("incremental" if kind == "incremental" else "full")
    model.assert_restores(last, model.state())


class Breaks(saveable_object.SaveableObject):
    """Makes TensorFlow's part of a save fail while the variable `broken` is true."""

    def __init__(self, broken):
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(broken), ["broken"])]):
            value = tf.constant(0.0)
        super().__init__(value, [saveable_object.SaveSpec(value, "", "breaks")], "breaks")

    def restore(self, restored_tensors, restored_shapes):
        return tf.no_op()


def test_a_save_over_a_checkpoint_that_fails_leaves_the_old_one(tmp_path, session):
    model = Model(session)
    broken = tf.compat.v1.get_variable("broken", initializer=False, trainable=False)
    session.run(broken.initializer)
    saver = train.Saver([*tf.compat.v1.global_variables(), Breaks(broken)])
    prefix = saver.save(session, str(tmp_path / "m"))
    old, want = saved_files.files(prefix), model.state()
    model.go_on()
    session.run(broken.assign(True))
    with pytest.raises(tf.errors.InvalidArgumentError, match="broken"):
        saver.save(session, prefix)
    assert saved_files.files(prefix) == old
    newer = model.state()
    model.assert_restores(prefix, want)
    assert not np.array_equal(newer, want)
    session.run(broken.assign(False))
    saver.save(session, prefix)
    new = saved_files.files(prefix)
    assert len(new) == len(old) and set(new) & set(old) == {"m.index", "m.meta"}


def test_compaction_clears_what_a_killed_one_has_left_and_replaces_nothing(tmp_path, session):
    prefix = Model(session).saver.save(session, str(tmp_path / "m"))
    for file in (
        "sok-0123456789abcdef.new-index",
        "sok-0123456789abcdef.part-0.index",
        "data-00000-of-00001",
    ):
        (tmp_path / f"whole.{file}").touch()
    assert cli.main(["compact", prefix, "--to", str(tmp_path / "whole")]) == 0
    written = saved_files.files(tmp_path / "whole")
    assert len(written) == 2 or len(written) == 3, written
    assert not list(tmp_path.glob("*0123456789abcdef*"))
    assert cli.main(["compact", prefix, "--to", str(tmp_path / "whole")]) == 2
    assert saved_files.files(tmp_path / "whole") == written


@pytest.fixture
def prefix(tmp_path):
    return str(tmp_path / "m-7")


def in_a_child(work):
    """Runs `work` in a forked process, which then waits to be killed; returns its id when `work` is done."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kept = work()  # noqa: F841 - a lock that is collected is not released, but its file is closed
            os.write(sender, b"x")
            while True:
                time.sleep(60)
        finally:
            os._exit(1)
    os.close(sender)
    with os.fdopen(receiver, "rb") as done:
        assert done.read(1) == b"x"
    return child


def kill(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_one_at_a_time_and_no_litter(prefix, tmp_path):
    with acquire(prefix, 0) as lock:
        assert try_acquire(prefix) is None
        with acquire(prefix + "0", 0):
            pass
        lock.release()
        with acquire(prefix, 0):
            lock.release()  # a second time, when another process holds it
            assert try_acquire(prefix) is None
    assert not list(tmp_path.iterdir())


def test_the_message_names_who_saves(prefix):
    child = in_a_child(lambda: acquire(prefix, 0))
    with pytest.raises(PrefixInUseError, match=rf"Process {child} on .* is saving to '{prefix}'"):
        acquire(prefix, 0.1)
    kill(child)


def test_a_killed_process_holds_nothing(prefix, tmp_path):
    child = in_a_child(lambda: acquire(prefix, 0))
    assert try_acquire(prefix) is None
    kill(child)
    assert os.path.exists(prefix + prefix_lock.SUFFIX)
    with acquire(prefix, 0):
        assert try_acquire(prefix) is None
    assert not list(tmp_path.iterdir())


def test_a_forked_child_neither_holds_nor_releases_its_parents_lock(prefix):
    with acquire(prefix, 0) as lock:
        child = in_a_child(lock.release)
        assert try_acquire(prefix) is None
    with acquire(prefix, 0):
        pass
    kill(child)


def test_a_childs_copy_does_not_outlive_the_parent(prefix):
    """Like a worker that a trainer forks while it saves, and that outlives the killed trainer."""

    def hold_and_fork():
        lock = acquire(prefix, 0)
        worker = os.fork()
        if worker == 0:
            time.sleep(60)
            os._exit(0)
        with open(prefix + ".worker", "w") as file:
            file.write(str(worker))
        return lock

    parent = in_a_child(hold_and_fork)
    with open(prefix + ".worker") as file:
        worker = int(file.read())
    kill(parent)
    # The worker may not have run yet, and closes its copy when it does.
    acquire(prefix, 30).release()
    os.kill(worker, signal.SIGKILL)


def test_waits_for_the_one_before(prefix):
    first = acquire(prefix, 0)
    released = threading.Event()

    def release():
        released.set()
        first.release()

    threading.Timer(0.2, release).start()
    with acquire(prefix, 30):
        assert released.is_set()


def test_many_processes(prefix, tmp_path):
    """Each process increments a number without other protection."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                for _ in range(50):
                    with acquire(prefix, 60):
                        value = int(counter.read_text())
                        time.sleep(0.0005)
                        counter.write_text(str(value + 1))
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert counter.read_text() == "200"
    assert [path.name for path in tmp_path.iterdir()] == ["counter"]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_locks_the_file_alone_counts(prefix, monkeypatch, code):
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(code, os.strerror(code))))
    with acquire(prefix, 0):
        assert try_acquire(prefix) is None
    # It is unknown whether the process that made this file is alive.
    with open(prefix + prefix_lock.SUFFIX, "w"):
        pass
    assert try_acquire(prefix) is None
    with pytest.raises(PrefixInUseError, match="remove that file"):
        acquire(prefix, 0)


def test_links_and_pipes_are_neither_followed_nor_waited_for(prefix, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("bytes")
    path = prefix + prefix_lock.SUFFIX
    for make in (lambda: os.symlink(victim, path), lambda: os.mkfifo(path), lambda: os.mkdir(path)):
        make()
        with pytest.raises(OSError, match=path):
            try_acquire(prefix)
        os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    os.link(victim, path)
    acquire(prefix, 0).release()
    assert victim.read_text() == "bytes"


@pytest.mark.parametrize("call", ["write", "lstat", "fstat"])
def test_a_call_that_fails_leaves_no_lock(prefix, tmp_path, monkeypatch, call):
    """On a full disk the lock has no text; a question without an answer is an error, and leaves nothing."""
    real = getattr(os, call)

    def fail(*args, **options):
        monkeypatch.setattr(os, call, real)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    if call == "write":
        with acquire(prefix, 0):
            assert try_acquire(prefix) is None
    else:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            acquire(prefix, 0)
    monkeypatch.undo()
    with acquire(prefix, 0):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_a_lock_that_fails_is_not_taken_for_a_file_system_without_locks(prefix, tmp_path, code):
    """Another process would find the file without a lock, and remove it."""
    failing = mock.patch.object(fcntl, "flock", side_effect=OSError(code, os.strerror(code)))
    with failing, pytest.raises(OSError, match=os.strerror(code)):
        acquire(prefix, 0)
    assert not list(tmp_path.iterdir())
    with acquire(prefix, 0):
        with failing, pytest.raises(OSError, match=os.strerror(code)):
            try_acquire(prefix)
        assert try_acquire(prefix) is None


def test_an_error_of_close_is_none_of_a_lock(prefix, tmp_path, monkeypatch):
    """The descriptor is closed anyway."""
    real = os.close

    def close(descriptor):
        real(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "m-7.sok.lock").touch()  # of a killed process
    monkeypatch.setattr(os, "close", close)
    with acquire(prefix, 0):
        assert try_acquire(prefix) is None
    assert not list(tmp_path.iterdir())
