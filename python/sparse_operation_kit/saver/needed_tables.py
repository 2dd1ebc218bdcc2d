"""NeededTables: the table folders that checkpoints need."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from sparse_operation_kit.checkpoint import manifest as manifests
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.printable import printable
from sparse_operation_kit.checkpoint.references import FOLDER_SUFFIX, read_references

_log = logging.getLogger(__name__)
# Warnings about unreadable checkpoints, each of which is logged once.
_logged: set[str] = set()


class NeededTables:
    """The folders that the checkpoints added so far refer to, including their chains.

    A checkpoint that cannot be read may need the folders beside it, and any folder that existed when it was
    written. All of these count as needed.
    """

    def __init__(self) -> None:
        """Starts without checkpoints."""
        self._folders: set[str] = set()
        self._unreadable: set[str] = set()
        self._unclear_until = float("-inf")

    def add(self, prefix: str) -> None:
        """Adds the folders that the checkpoint at `prefix` needs. Logs a warning if it cannot be read."""
        path = Path(prefix)
        try:
            for reference in read_references(path):
                for folder in reference.places(path):
                    self._add_folder(folder)
        except CheckpointError as error:
            self._add_unreadable(path, error)

    def has(self, folder: str) -> bool:
        """Returns whether one of the checkpoints needs or may need the folder."""
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
            # The tables that it needs are older than its index.
            self._unclear_until = max(self._unclear_until, os.lstat(f"{prefix}.index").st_mtime)
        except OSError:
            self._unclear_until = float("inf")
        if str(error) not in _logged:
            _logged.add(str(error))
            _log.warning("%s", printable(f"Tables that {prefix} may need are not removed: {error}"))
