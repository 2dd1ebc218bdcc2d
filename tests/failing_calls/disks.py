"""Tables whose rows are mostly on a disk, which fails."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from failing_calls.scenario import Trains
from failing_calls.training import TABLES
from sparse_operation_kit.tables.storage_option import StorageOption, StorageType

v1 = tf.compat.v1


class TrainsOnDisk(Trains):
    """Tables are made, whose rows do not fit into memory, and trained; then a checkpoint is restored.

    A checkpoint of their third step is beside them, so that the rows of a failed step can come back.
    """

    name = "disk"

    def __init__(self, folder: Path) -> None:
        """Builds the training."""
        # Three rows of each table fit: every step needs others.
        super().__init__(folder, memory=StorageOption(StorageType.DRAM_SSDHASH, str(folder / "rows"), [150]))
        with self.training.graph.as_default():
            self._saver = v1.train.Saver()

    def start(self) -> None:
        """Saves step 3, or goes on after a kill."""
        assert not (self.folder / "rows").exists() or not list((self.folder / "rows").iterdir()), "rows stay"
        super().start()
        if not (self.folder / "model.index").exists():
            self.training.take_steps(self.saved)
            self._saver.save(self.training.session, str(self.folder / "model"))
        self._restore()

    def _restore(self) -> None:
        self._saver.restore(self.training.session, str(self.folder / "model"))

    def prepare(self) -> None:
        """The works of the queue are not of interest."""
        self.training.takes_works_in_order = False

    def act(self) -> None:
        """Begins anew, with other files, and trains."""
        self.training.initialize()
        self.training.take_steps(self.saved)

    def check(self, error: Exception | None) -> None:
        """The error names a table and the folder, training goes on, and the checkpoint has all rows."""
        if error is None:
            self.reference.check(self.training)
        else:
            self.check_error(error, f"{self.folder}/rows")
            assert any(f"'{name}'" in self.reason(error) for name in TABLES), f"no table is named: {error}"
        self.training.initialize()
        self.training.take_steps()
        self._restore()
        assert self.reference.check(self.training) == self.saved

    def recover(self) -> None:
        """As `check`, in the process after a kill: `start` has found no file of it."""
        assert self.reference.check(self.training) == self.saved
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    def open_files(self) -> list[str]:
        """Returns the open files but those of rows, of which each table has one."""
        found = super().open_files()
        rows = [path for path in found if path.startswith(f"{self.folder}/rows")]
        assert len(rows) <= len(TABLES), f"open: {rows}"
        return [path for path in found if path not in rows]


SCENARIOS = (TrainsOnDisk,)
