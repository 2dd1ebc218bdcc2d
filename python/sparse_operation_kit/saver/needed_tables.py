"""NeededTables: the tables that checkpoints need."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from sparse_operation_kit.checkpoint import manifest as manifests
from sparse_operation_kit.checkpoint import table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.printable import printable
from sparse_operation_kit.checkpoint.references import read_references
from sparse_operation_kit.checkpoint.table_files import FOLDER_SUFFIX

_log = logging.getLogger(__name__)
# Warnings about unreadable checkpoints, each of which is logged once.
_logged: set[str] = set()


class NeededTables:
    """The tables that the checkpoints added so far refer to, including their chains.

    A checkpoint that cannot be read may need the tables beside it, and any table that existed when it was
    written. All of these count as needed.
    """

    def __init__(self) -> None:
        """Starts without checkpoints."""
        self._paths: set[str] = set()  # as in references: see table_files.py
        self._unreadable: set[str] = set()
        self._unclear_until = float("-inf")

    def add(self, prefix: str) -> None:
        """Adds the tables that the checkpoint at `prefix` needs. Logs a warning if it cannot be read.

        Raises OSError if the file system does not say which files there are.
        """
        path = Path(prefix)
        try:
            for reference in read_references(path):
                for table in reference.paths(path):
                    self._add_table(table)
        except CheckpointError as error:
            self._add_unreadable(path, error)

    def has(self, place: Path) -> bool:
        """Returns whether one of the checkpoints needs or may need the table at a place."""
        path = os.path.normpath(table_files.path_of(place))
        if path in self._paths or os.path.dirname(path) in self._unreadable:
            return True
        try:
            return table_files.written_at(place) <= self._unclear_until
        except OSError:
            return True

    def _add_table(self, path: Path) -> None:
        self._paths.add(os.path.normpath(path))
        place = table_files.place_at(path)
        if table_files.is_complete(place):
            for link in manifests.read(place).chain:
                self._paths.add(os.path.normpath(path / link.path))

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
