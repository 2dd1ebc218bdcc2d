"""The lock of a checkpoint's prefix, which saves, compaction and retention hold while they work there.

A save holds it until TensorFlow's files are written, so that no other process takes a save that is under way
for the leftovers of a killed one. The lock is `flock` on the file `<prefix>.sok.lock`, which is removed when
the lock is released. The lock of a killed process is free, and its file is removed when the next process asks
for the lock. On a file system without `flock` the file itself is the lock: nothing beside it is removed, and
after a kill it has to be removed by hand.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import time
from typing import Any

SUFFIX = ".sok.lock"
# Two processes that ask at the same moment disturb each other, but not that often in a row.
_ATTEMPTS = 20
_LONGEST_HOLDER = 300


class PrefixInUseError(Exception):
    """Another process, or another thread, holds a prefix; the message says which process."""


class PrefixLock:
    """The lock of a prefix, held. A context manager that releases it. Not thread-safe."""

    def __init__(self, path: str, descriptor: int) -> None:
        """Use `acquire` or `try_acquire`."""
        self._path = path
        self._descriptor = descriptor
        _held.add(self)

    def release(self) -> None:
        """Lets others have it. Harmless when done already."""
        if self not in _held:
            return
        with contextlib.suppress(OSError):
            if _is_at(self._path, self._descriptor):
                os.unlink(self._path)
        self.forget()

    def forget(self) -> None:
        """Closes what a forked process has got of its parent's lock, which the parent still holds."""
        _held.discard(self)
        os.close(self._descriptor)

    def __enter__(self) -> PrefixLock:
        """Returns itself."""
        return self

    def __exit__(self, *error: Any) -> None:
        """Releases it."""
        self.release()


_held: set[PrefixLock] = set()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


# Else a child would hold what a killed parent held.
os.register_at_fork(after_in_child=_forget_all)


def acquire(prefix: str, patience: float) -> PrefixLock:
    """Returns the lock of a prefix, in a directory that is there.

    Args:
      prefix: Of a checkpoint.
      patience: Seconds to wait for another to release it.

    Raises:
      PrefixInUseError: It was not released in that time.
      OSError: The lock's file cannot be made.
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
    """Returns the lock of a prefix, or None where another holds it. Raises OSError as `acquire`."""
    path = os.path.abspath(prefix) + SUFFIX
    for _ in range(_ATTEMPTS):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            if not _remove_abandoned(path):
                return None
            continue
        # A file that this process has just made is its own, with locks or without; but another may have
        # found it before it was locked.
        if _flock(descriptor) is not False and _is_at(path, descriptor):
            os.write(descriptor, f"Process {os.getpid()} on {socket.gethostname()}".encode())
            return PrefixLock(path, descriptor)
        os.close(descriptor)
    return None


def _remove_abandoned(path: str) -> bool:
    """Removes the lock of a killed process. Returns whether nobody holds the lock at `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"'{path}' is no file, as a checkpoint's lock is")
        locked = _flock(descriptor)
        # Only who holds the lock of a file removes it.
        if locked and _is_at(path, descriptor):
            os.unlink(path)
        return bool(locked)
    finally:
        os.close(descriptor)


def _flock(descriptor: int) -> bool | None:
    """Whether this process now has the lock of a file; None where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(path: str, descriptor: int) -> bool:
    """Whether the open file is still that at `path`."""
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
