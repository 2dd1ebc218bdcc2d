"""The lock of a checkpoint's prefix, which saves, compaction and retention hold.

A save holds it until TensorFlow's files are written. Otherwise another process could remove the tables of a
running save as leftovers of a killed one. The lock is `flock` on the file `<prefix>.sok.lock`, which is
removed when the lock is released. If a process is killed, its lock is released, and the next process that
asks for the lock removes the file. On a file system without `flock` the file itself is the lock. Then tables
at its prefix are not removed while it exists, and after a kill it has to be removed by hand.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from typing import Any

SUFFIX = ".sok.lock"
# Processes that ask at the same moment can interfere with each other, but not this often in a row.
_ATTEMPTS = 20
_LONGEST_HOLDER = 300


class PrefixInUseError(Exception):
    """Another process or thread holds the lock of a prefix; the message names the process."""


class PrefixLock:
    """A lock of a prefix that is held; as a context manager it is released at the end. Not thread-safe."""

    def __init__(self, path: str, descriptor: int) -> None:
        """Use `acquire` or `try_acquire`."""
        self._path = path
        self._descriptor = descriptor
        _held.add(self)

    def release(self) -> None:
        """Releases the lock. Does nothing if it is released already."""
        if self not in _held:
            return
        with contextlib.suppress(OSError):
            if _is_at(self._path, self._descriptor):
                os.unlink(self._path)
        self.forget()

    def forget(self) -> None:
        """Closes the lock's file without unlocking; in a forked process the parent keeps the lock."""
        _held.discard(self)
        _close(self._descriptor)

    def __enter__(self) -> PrefixLock:
        return self

    def __exit__(self, *error: Any) -> None:
        self.release()


_held: set[PrefixLock] = set()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


# Otherwise a forked child would keep the lock of a killed parent.
os.register_at_fork(after_in_child=_forget_all)


def acquire(prefix: str, patience: float) -> PrefixLock:
    """Acquires the lock of a prefix; the prefix's directory must exist.

    Args:
      prefix: The prefix of a checkpoint.
      patience: Seconds to wait for another holder to release the lock.

    Raises:
      PrefixInUseError: The lock was not released in that time.
      OSError: The lock's file cannot be created.
    """
    deadline = time.monotonic() + patience
    while True:
        lock = try_acquire(prefix)
        if lock is not None:
            return lock
        if time.monotonic() >= deadline:
            path = os.path.abspath(prefix) + SUFFIX
            raise PrefixInUseError(
                f"{_holder(path)} is saving to '{prefix}', and has been for {patience:g} s. (It holds "
                f"'{path}'. Where the file system has no locks, remove that file if the process is gone.)"
            )
        time.sleep(0.02)


def try_acquire(prefix: str) -> PrefixLock | None:
    """Acquires the lock of a prefix; returns None if it is held already. Raises OSError as `acquire`."""
    path = os.path.abspath(prefix) + SUFFIX
    for _ in range(_ATTEMPTS):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            if not _remove_abandoned(path):
                return None
            continue
        # Having created the file, this process owns it, even without flock. But another process may have
        # found the file before it was locked; then that process has the lock, or has removed the file.
        lock = PrefixLock(path, descriptor)
        try:
            if _flock(descriptor) is not False and _is_at(path, descriptor):
                # The text is for people: a lock on a full disk has none.
                with contextlib.suppress(OSError):
                    os.write(descriptor, f"Process {os.getpid()} on {socket.gethostname()}".encode())
                return lock
        except OSError:
            lock.release()
            raise
        lock.forget()
    return None


def _remove_abandoned(path: str) -> bool:
    """Removes the lock file of a killed process. Returns whether no process holds the lock at `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"'{path}' is not a regular file, and cannot be a checkpoint's lock")
        locked = _flock(descriptor)
        # A file is removed only under its own lock.
        if locked and _is_at(path, descriptor):
            os.unlink(path)
        return bool(locked)
    finally:
        _close(descriptor)


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # The descriptor is closed anyway.
        os.close(descriptor)


def _flock(descriptor: int) -> bool | None:
    """Tries to lock a file; returns whether it is locked, None if the file system has no locks.

    Raises OSError if the file system did not answer: without the lock, another process would take this one
    for killed.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.EIO, errno.ESTALE):
            raise
        return None
    return True


def _is_at(path: str, descriptor: int) -> bool:
    """Returns whether the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            text = file.read(_LONGEST_HOLDER).decode("ascii", "replace")
    except OSError:
        text = ""
    return "".join(filter(str.isprintable, text)) or "Another process"
