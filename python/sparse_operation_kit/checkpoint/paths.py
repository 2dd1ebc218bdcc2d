"""Paths that come from users and from files, and the files that they lead to."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from sparse_operation_kit.checkpoint import own_files
from sparse_operation_kit.checkpoint.errors import CheckpointError

# Linux's PATH_MAX, with the zero byte at the end.
_MAX_BYTES = 4096


def path_problem(path: str | os.PathLike) -> str | None:
    """Returns why the operating system cannot take `path` as a path, None where it can."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        return "has a zero byte, as no path can"
    if len(encoded) >= _MAX_BYTES:
        return f"has {len(encoded)} bytes, more than a path can have"
    return None


def check_path(path: str | os.PathLike) -> Path:
    """Returns the path. Raises CheckpointError where the operating system cannot take it as one."""
    problem = path_problem(path)
    if problem is not None:
        raise CheckpointError(os.fspath(path)[:200], problem)
    return Path(path)


def open_file(path: Path) -> BinaryIO:
    """Opens a file to be read, without a buffer. It follows no link of a checkpoint's, and waits for no pipe.

    Raises:
      CheckpointError: There is none, it cannot be read, or it is a link, a folder, a pipe, a device.
    """
    try:
        descriptor = own_files.opener(os.fspath(path), os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror or error}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(path, "is no file")
    return os.fdopen(descriptor, "rb", buffering=0)


def refuse_other_than_file(path: Path) -> None:
    """Raises CheckpointError where something else than a file is at `path`: others would open it and wait."""
    if os.path.lexists(path) and not path.is_file():
        raise CheckpointError(path, "is no file")
