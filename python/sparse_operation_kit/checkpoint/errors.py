"""CheckpointError, which the public functions of this package raise."""

from __future__ import annotations

import os

from sparse_operation_kit.checkpoint.printable import printable


class CheckpointError(Exception):
    """A checkpoint is damaged, incomplete, of another format or missing. Names the file and the reason."""

    def __init__(self, path: str | os.PathLike, reason: str) -> None:
        """`path` is the file or folder with the problem; `reason` describes it. Both may be any text."""
        super().__init__(printable(f"{os.fspath(path)}: {reason}"))
        self.path = os.fspath(path)
        self.reason = reason


class UnansweredError(CheckpointError):
    """The operating system could not read or write a file: this says nothing of what the file has."""
