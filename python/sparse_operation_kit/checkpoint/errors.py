"""The error of everything that reads or writes checkpoints here."""

import os


class CheckpointError(Exception):
    """A checkpoint cannot be used: damaged, incomplete, foreign or missing. Names the file and the reason."""

    def __init__(self, path: str | os.PathLike, reason: str) -> None:
        """`path` is the file or folder that is at fault; `reason` says what is wrong with it."""
        super().__init__(f"{os.fspath(path)}: {reason}")
        self.path = os.fspath(path)
        self.reason = reason
