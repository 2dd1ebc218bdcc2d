"""Restores fail, and other ways in which tables get their rows from files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

import harness
import sparse_operation_kit as sok
from failing_calls.saving import IncrementsOfHook
from failing_calls.scenario import Scenario, Trains
from failing_calls.training import TABLES, Training

v1 = tf.compat.v1
# The step of the checkpoint that is restored.
_SAVED = 3


def _digests(folder: Path) -> dict[str, str]:
    """The contents of all files below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha1(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Restores(Scenario):
    """An incremental checkpoint, and those that it builds on, are restored into tables with other rows."""

    name = "restore"
    kills = False

    def __init__(self, folder: Path) -> None:
        """Builds the training."""
        super().__init__(folder)
        self._saves = IncrementsOfHook(folder)
        self.training, self._saver = self._saves.training, self._saves._saver

    def start(self) -> None:
        """Saves checkpoints, which stay as they are."""
        self._saves.start()
        self._prefix = tf.train.latest_checkpoint(str(self.folder))
        self._files = _digests(self.folder)

    def prepare(self) -> None:
        """Takes steps that the restore undoes."""
        self._saver.restore(self.training.session, self._prefix)
        self.training.take_steps(2)

    def act(self) -> None:
        """A restore."""
        self._saver.restore(self.training.session, self._prefix)

    def check(self, error: Exception | None) -> None:
        """All is as before."""
        if error is None:
            assert self.reference.check(self.training) == _SAVED
        else:
            self.check_error(error)
            assert self.reference.check(self.training) == _SAVED + 2
        self._saver.restore(self.training.session, self._prefix)
        assert self.reference.check(self.training) == _SAVED
        assert _digests(self.folder) == self._files, "the checkpoint has changed"


class InitializesFromCheckpoint(Scenario):
    """A new graph whose tables are initialized from a checkpoint."""

    name = "init_from_checkpoint"
    kills = False

    def __init__(self, folder: Path) -> None:
        """Builds the training that saves."""
        super().__init__(folder)
        self._saves = IncrementsOfHook(folder)

    def start(self) -> None:
        """Saves checkpoints, which stay as they are."""
        self._saves.start()
        self._saves.default_graph.__exit__(None, None, None)
        self._files = _digests(self.folder)
        self._rows = [self.reference.state(_SAVED)[i] for i in (2, 4)]

    def _load(self) -> Training:
        def initialize_tables() -> None:
            names = {name: name for name in TABLES}
            sok.init_from_checkpoint(str(self.folder), names, optimizer_state=True)

        training = Training(before_initializers=initialize_tables)
        with training.session, training.graph.as_default():
            training.initialize()
            found = training.state()
        for rows, right in zip((found[2], found[4]), self._rows):
            np.testing.assert_array_equal(rows, right)
        return training

    def act(self) -> None:
        """Builds the graph and runs its initializers."""
        self._load()

    def check(self, error: Exception | None) -> None:
        """After an error, what is built next has the rows."""
        if isinstance(error, ValueError):
            # TensorFlow's function takes a list of checkpoints that it cannot read for none.
            assert str(self.folder) in str(error) and "cannot be read" in str(error), error
        elif error is not None:
            self.check_error(error)
        if error is not None:
            self._load()
        assert _digests(self.folder) == self._files, "the checkpoint has changed"


class MapsTables(Scenario):
    """The rows of a checkpoint are mapped into a table with other rows, in a graph that does not train."""

    name = "restore_mapped"
    kills = False
    _COLUMNS = 3000  # three rows have several pages

    def __init__(self, folder: Path) -> None:
        """Builds the graph."""
        super().__init__(folder)
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._init = sok.Init(global_batch_size=harness.GLOBAL_BATCH_SIZE, seed=harness.SEED)
            table = sok.EmbeddingVariable(TABLES[0], self._COLUMNS)
            self._rows = v1.placeholder(tf.float32, [3, self._COLUMNS])
            self._assign = table.assign_rows(np.arange(3), self._rows)
            self._reader = harness.TableReader(table)
            self._initialize = v1.global_variables_initializer()
            self._saver = v1.train.Saver()
        self._saved, self._other = np.arange(6.0 * self._COLUMNS).reshape([2, 3, -1])

    def start(self) -> None:
        """Saves a checkpoint, which stays as it is."""
        self._session = v1.Session(graph=self._graph, config=harness.without_optimizations())
        self._session.run([self._init, self._initialize])
        self._session.run(self._assign, {self._rows: self._saved})
        with self._graph.as_default():
            self._prefix = self._saver.save(self._session, str(self.folder / "model.ckpt"))
        self._files = _digests(self.folder)

    def prepare(self) -> None:
        """Gives the table other rows."""
        self._session.run(self._assign, {self._rows: self._other})

    def act(self) -> None:
        """A restore."""
        os.environ["SOK_MAP_TABLES"] = "1"
        try:
            with self._graph.as_default():
                self._saver.restore(self._session, self._prefix)
        finally:
            del os.environ["SOK_MAP_TABLES"]

    def check(self, error: Exception | None) -> None:
        """The table has the rows of the checkpoint, or those before."""
        assert error is None or self.failure.kinds != "map", "a file that cannot be mapped was not read"
        if error is not None:
            self.check_error(error)
        ((keys, rows),) = self._reader.read(self._session)
        right = self._saved if error is None else self._other
        np.testing.assert_array_equal(rows[np.argsort(keys)], right)
        assert _digests(self.folder) == self._files, "the checkpoint has changed"


class _RawFiles(Trains):
    """Tables in the raw files of the original SOK."""

    def __init__(self, folder: Path) -> None:
        """Builds the training."""
        super().__init__(folder)
        self.training.takes_works_in_order = False
        with self.training.graph.as_default():
            table = self.training.tables[0]
            self._dump = sok.Saver().dump_to_file(table, str(folder))
            self._restore = sok.Saver().restore_from_file(table, str(folder))

    def start(self) -> None:
        """Dumps a table's rows, or goes on after a kill."""
        self.training.initialize()
        self._is_new = not self.names()
        if self._is_new:
            self.training.take_steps(3)
            self.training.session.run(self._dump)

    def _check_rows(self, *steps: int) -> None:
        found = self.training.state()[1:3]
        states = [self.reference.state(step)[1:3] for step in steps]
        same = [all(np.array_equal(one, other) for one, other in zip(found, state)) for state in states]
        assert any(same), "other rows"


class DumpsRawFiles(_RawFiles):
    """Raw files of a table are written over those of the step before."""

    name = "raw_dump"

    def prepare(self) -> None:
        """A step."""
        self.training.take_steps()
        self._at = self.training.steps()

    def act(self) -> None:
        """A dump."""
        self.training.session.run(self._dump)

    def check(self, error: Exception | None) -> None:
        """The files have the new rows, or the old ones, or there is no file of keys."""
        self.check_synced(error)
        if error is not None:
            self.check_error(error, TABLES[0])
        self._check_files(
            [self._at] if error is None else [self._at, self._at - 1], may_lack=error is not None
        )
        # The other table's optimizer has its slots, but not this one's.
        self._start_again(self._at)

    def _check_files(self, steps: list[int], may_lack: bool) -> None:
        try:
            self.training.session.run(self._restore)
        except tf.errors.NotFoundError:
            assert may_lack, "no files after a dump"
        else:
            self._check_rows(*steps)

    def _start_again(self, step: int) -> None:
        self.training.initialize()
        self.training.take_steps(step % 20 + 3)
        self.training.session.run(self._dump)
        self.check_nothing_left()
        self._check_files([self.training.steps()], may_lack=False)
        self.training.initialize()
        self.training.take_steps(step % 20 + 3)

    def recover(self) -> None:
        """As `check`, in the process after a kill."""
        assert not self._is_new
        self._check_files([3, 4], may_lack=True)
        self._start_again(0)
        for path in self.folder.iterdir():
            path.unlink()


class LoadsRawFiles(_RawFiles):
    """Raw files are read into a table that has other rows."""

    name = "raw_load"
    kills = False

    def prepare(self) -> None:
        """Takes steps from the start, which the rows of the files replace."""
        self.training.initialize()
        self.training.take_steps(5)

    def act(self) -> None:
        """A load."""
        self.training.session.run(self._restore)

    def check(self, error: Exception | None) -> None:
        """The rows are those of the files, or those before."""
        if error is not None:
            self.check_error(error, TABLES[0])
            assert not isinstance(error, tf.errors.DataLossError), "an unread file is called damaged"
        self._check_rows(3 if error is None else 5)
        self.training.session.run(self._restore)
        self._check_rows(3)


SCENARIOS = (Restores, InitializesFromCheckpoint, MapsTables, DumpsRawFiles, LoadsRawFiles)
