"""Exports and `compact` fail."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet  # before the filter: what it loads starts a thread that blocks signals
import tensorflow as tf

import harness
from failing_calls.saving import IncrementsOfHook
from failing_calls.scenario import Scenario
from failing_calls.training import TABLES
from sparse_operation_kit.checkpoint import compaction, exporting
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.locate import open_checkpoint

_LOCK = ".lock"


class _Writes(Scenario):
    """Something is written beside an incremental checkpoint."""

    # What is written.
    _to = "out"

    def __init__(self, folder: Path) -> None:
        """Builds the training that saves."""
        super().__init__(folder)
        self._source = folder / "source"
        self._saves = IncrementsOfHook(self._source)

    def start(self) -> None:
        """Saves checkpoints, which stay as they are, if they are not there."""
        self._is_new = not self._source.exists()
        if self._is_new:
            self._source.mkdir()
            self._saves.start()
            self._saves.default_graph.__exit__(None, None, None)
        self._names = [name for name in self.names() if name.startswith("source")]

    def act(self) -> None:
        """Writes it."""
        raise NotImplementedError

    def check(self, error: Exception | None) -> None:
        """There is all of it, or nothing; and it can be written again."""
        if error is not None:
            self.check_error(error)
            assert isinstance(error, CheckpointError), f"a {type(error).__name__}"
        may_stay = ""
        if self.failure is not None and self.failure.lasting:
            may_stay = ".*"
        elif self.failed_path.endswith(_LOCK):
            # Nobody holds it.
            may_stay = f".*{_LOCK}"
        if error is None or self._is_there():
            self._check_written(may_stay)
        else:
            self._check_nothing_but([], may_stay)
        self._write_again()

    def recover(self) -> None:
        """As `check`, in the process after a kill."""
        assert not self._is_new
        if self._is_there():
            self._check_written(may_stay=".*")
        self._write_again()

    def _write_again(self) -> None:
        """Checks that what was left goes with the next one."""
        if self._is_there():
            self._remove()
        self.act()
        self._check_written()
        self._remove()

    def _is_there(self) -> bool:
        return (self.folder / self._to).exists()

    def _check_nothing_but(self, others: list[str], may_stay: str) -> None:
        left = [name for name in self.names() if name not in self._names and name not in others]
        left = [name for name in left if not re.fullmatch(may_stay, name)]
        assert not left, f"left: {left}"

    def _check_written(self, may_stay: str = "") -> None:
        written = [name for name in self.names() if name.split("/")[0] == self._to]
        self._check_nothing_but(written, may_stay)
        assert not [name for name in written if re.search("unfinished|tmp|tempstate|sok-", name)], written
        self._check_rows(self.folder / self._to)

    def _check_rows(self, path: Path) -> None:
        raise NotImplementedError

    def _check_table(self, table: int, keys: np.ndarray, rows: np.ndarray) -> None:
        order = np.argsort(keys)
        harness.assert_equal_arrays((keys[order], rows[order]), self._right(table))

    def _right(self, table: int) -> tuple[np.ndarray, np.ndarray]:
        state = self.reference.state(3)
        return state[1 + 2 * table], state[2 + 2 * table]

    def _remove(self) -> None:
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if str(path.relative_to(self.folder)) not in self._names and path.suffix != _LOCK:
                path.rmdir() if path.is_dir() else path.unlink()


class _Exports(_Writes):
    format: str

    def act(self) -> None:
        """An export."""
        exporting.export(open_checkpoint(self._source), self.folder / self._to, self.format)

    def _check_rows(self, path: Path) -> None:
        for table, name in enumerate(TABLES):
            self._check_table(table, *self._read(path, name))

    def _read(self, path: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The keys and rows of a table."""
        raise NotImplementedError


class ExportsNpy(_Exports):
    """`export --format npy`."""

    name = format = "npy"

    def _read(self, path: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
        return np.load(path / name / "keys.npy"), np.load(path / name / "values.npy")


class ExportsParquet(_Exports):
    """`export --format parquet`."""

    name = format = "parquet"

    def _read(self, path: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
        # Not from the file: Arrow's threads may close it after the table is there.
        read = pyarrow.parquet.read_table(pyarrow.BufferReader((path / f"{name}.parquet").read_bytes()))
        return np.array(read["key"]), np.array(read["values"].to_pylist(), np.float32)


class ExportsDeepRec(_Exports):
    """`export --format deeprec`."""

    name = format = "deeprec"

    def _read(self, path: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
        tensors = tf.train.load_checkpoint(str(path))
        return tensors.get_tensor(f"{name}-keys"), tensors.get_tensor(f"{name}-values")


class ExportsSok2(_Exports):
    """`export --format sok2`."""

    name = format = "sok2"

    def _read(self, path: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
        keys = np.fromfile(path / f"{name}-key", np.int64, offset=296)
        return keys, np.fromfile(path / f"{name}-weight", np.float32, offset=296).reshape(len(keys), -1)


class ExportsSavedModel(_Exports):
    """`export --format saved_model`."""

    name = format = "saved_model"

    def _read(self, path: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
        keys, _ = self._right(TABLES.index(name))
        return keys, harness.served(str(path), name, ids=keys)["rows"]


class ExportsSavedModelSok(ExportsSavedModel):
    """`export --format saved_model_sok`."""

    name = format = "saved_model_sok"


class Compacts(_Writes):
    """`compact`."""

    name = "compact"
    _to = "full"

    def check(self, error: Exception | None) -> None:
        """Also, that a checkpoint is on the disk."""
        self.check_synced(error)
        super().check(error)

    def act(self) -> None:
        """Makes a full checkpoint."""
        compaction.compact(open_checkpoint(self._source), self.folder / self._to)

    def _is_there(self) -> bool:
        return (self.folder / f"{self._to}.index").exists()

    def _check_written(self, may_stay: str = "") -> None:
        written = [name for name in self.names() if re.fullmatch(r"full\.(index|data-.*)", name)]
        self._check_nothing_but(written, may_stay)
        tables = harness.saved_tables(str(self.folder / self._to))
        for table, name in enumerate(TABLES):
            self._check_table(table, tables[name]["keys"], tables[name]["values"])


SCENARIOS = (
    ExportsNpy,
    ExportsParquet,
    ExportsDeepRec,
    ExportsSok2,
    ExportsSavedModel,
    ExportsSavedModelSok,
    Compacts,
)
