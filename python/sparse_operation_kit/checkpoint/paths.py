"""Checks paths from users and files."""

from __future__ import annotations

import os
from pathlib import Path

from sparse_operation_kit.checkpoint.errors import CheckpointError

# Linux's PATH_MAX, which includes the terminating zero byte.
_MAX_BYTES = 4096


def path_problem(path: str | os.PathLike) -> str | None:
    """Returns why `path` is not a valid path for the operating system, None if it is valid."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        return "has a zero byte, which a path cannot have"
    if len(encoded) >= _MAX_BYTES:
        return f"has {len(encoded)} bytes, more than a path can have"
    return None


def check_path(path: str | os.PathLike) -> Path:
    """Returns the path. Raises CheckpointError if it is not valid for the operating system."""
    problem = path_problem(path)
    if problem is not None:
        raise CheckpointError(os.fspath(path)[:200], problem)
    return Path(path)


def refuse_other_than_file(path: Path) -> None:
    """Raises CheckpointError if `path` exists and is not a file. Opening a pipe, for example, would block."""
    if os.path.lexists(path) and not path.is_file():
        raise CheckpointError(path, "is not a file")
