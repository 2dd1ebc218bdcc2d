"""The lock of a prefix: it has one holder at a time, ends with its process, and leaves no files."""

import errno
import fcntl
import os
import signal
import threading
import time

import pytest

from sparse_operation_kit.checkpoint import prefix_lock
from sparse_operation_kit.checkpoint.prefix_lock import PrefixInUseError, acquire, try_acquire


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
    def flock(descriptor, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
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
def test_a_lock_that_fails_is_not_taken_for_a_file_system_without_locks(prefix, tmp_path, monkeypatch, code):
    """Another process would find the file without a lock, and remove it."""

    def flock(descriptor, operation):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        with pytest.raises(OSError, match=os.strerror(code)):
            acquire(prefix, 0)
    assert not list(tmp_path.iterdir())
    with acquire(prefix, 0):
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", flock)
            with pytest.raises(OSError, match=os.strerror(code)):
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
