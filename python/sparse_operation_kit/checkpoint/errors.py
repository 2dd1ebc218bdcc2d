"""The error of everything that reads or writes checkpoints here."""

import os

from sparse_operation_kit.checkpoint.printable import printable


class CheckpointError(Exception):
    """A checkpoint cannot be used: damaged, incomplete, foreign or missing. Names the file and the reason."""

    def __init__(self, path: str | os.PathLike, reason: str) -> None:
        """`path` is the file or folder at fault; `reason` says what is wrong. Both may be any text."""
        super().__init__(printable(f"{os.fspath(path)}: {reason}"))
        self.path = os.fspath(path)
        self.reason = reason
