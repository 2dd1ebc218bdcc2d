"""Which tables' folders checkpoints need."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from sparse_operation_kit.checkpoint import manifest as manifests
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.printable import printable
from sparse_operation_kit.checkpoint.references import FOLDER_SUFFIX, read_references

_log = logging.getLogger(__name__)
# Of checkpoints that could not be read: each is told of once.
_told: set[str] = set()


class NeededTables:
    """The folders that the checkpoints added so far refer to, their chains included.

    Of a checkpoint that cannot be read, it is not known which folders it needs: those beside it, and any that
    were there when it was written.
    """

    def __init__(self) -> None:
        """Starts without checkpoints, which need nothing."""
        self._folders: set[str] = set()
        self._unreadable: set[str] = set()
        self._unclear_until = float("-inf")

    def add(self, prefix: str) -> None:
        """Adds what the checkpoint at `prefix` needs. A warning tells of one that cannot be read."""
        path = Path(prefix)
        try:
            for reference in read_references(path):
                for folder in reference.places(path):
                    self._add_folder(folder)
        except CheckpointError as error:
            self._add_unreadable(path, error)

    def has(self, folder: str) -> bool:
        """Whether one of the checkpoints needs the folder, or may need it."""
        path = os.path.normpath(folder)
        if path in self._folders or os.path.dirname(path) in self._unreadable:
            return True
        try:
            return os.lstat(path).st_mtime <= self._unclear_until
        except OSError:
            return True

    def _add_folder(self, folder: Path) -> None:
        self._folders.add(os.path.normpath(folder))
        if folder.is_dir():
            for link in manifests.read(folder).chain:
                self._folders.add(os.path.normpath(folder / link.path))

    def _add_unreadable(self, prefix: Path, error: CheckpointError) -> None:
        self._unreadable.add(os.path.normpath(f"{prefix}{FOLDER_SUFFIX}"))
        try:
            # What it builds on was there before its index was.
            self._unclear_until = max(self._unclear_until, os.lstat(f"{prefix}.index").st_mtime)
        except OSError:
            self._unclear_until = float("inf")
        if str(error) not in _told:
            _told.add(str(error))
            _log.warning("%s", printable(f"Tables that {prefix} may need stay where they are: {error}"))
