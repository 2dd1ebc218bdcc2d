"""Allocations and threads of the op library fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok
from failing_calls.scenario import Trains
from failing_calls.training import TABLES

v1 = tf.compat.v1


class _WithoutMemory(Trains):
    """A training, with a checkpoint and raw files of its third step."""

    kills = False
    of_memory = True

    def __init__(self, folder: Path) -> None:
        """Builds the training, and what else uses its tables."""
        super().__init__(folder)
        with self.training.graph.as_default():
            self._saver = v1.train.Saver()
            table = self.training.tables[0]
            self._dump = sok.Saver().dump_to_file(table, str(folder))
            self._load = sok.Saver().restore_from_file(table, str(folder))
            self._ids = v1.placeholder(tf.int64, [None])
            self._new_rows = [
                tf.nn.embedding_lookup(sok.EmbeddingVariable("single", 8), self._ids),
                *sok.group_embedding_lookup(self.training.tables, [self._ids, self._ids]),
            ]
            self._initialize = v1.global_variables_initializer()

    def start(self) -> None:
        """Saves step 3."""
        super().start()
        self._run(self._initialize)
        self.training.take_steps(self.saved)
        self._prefix = self._saver.save(self.training.session, str(self.folder / "model"))
        self._others = 0
        self._run(self._dump)

    def _run(self, fetches: object, feed: dict | None = None) -> object:
        return self.training.session.run(fetches, feed)

    def prepare(self) -> None:
        """Restores the saved step."""
        self._restore()

    def _restore(self) -> None:
        self._saver.restore(self.training.session, self._prefix)

    def check(self, error: Exception | None) -> None:
        """The error says what could not get memory, and everything goes on."""
        if error is not None:
            assert isinstance(error, tf.errors.ResourceExhaustedError), f"a {type(error).__name__}: {error}"
            text = self.reason(error)
            names = (*TABLES, "single", str(self.folder))
            assert any(name in text for name in names), f"neither a table nor a file is named: {text[:500]}"
        self._restore()
        assert self.reference.check(self.training) == self.saved


class LooksUpWithoutMemory(_WithoutMemory):
    """Lookups, single and of a group, make new rows."""

    name = "memory_lookup"

    def act(self) -> None:
        """Lookups of new keys."""
        self._others += 4000
        for rows in self._new_rows:
            self._run(rows, {self._ids: np.arange(self._others, self._others + 4000)})


class TrainsWithoutMemory(_WithoutMemory):
    """Steps make rows, and slots of their optimizer."""

    name = "memory_step"

    def act(self) -> None:
        """A step of new keys."""
        self._others += 4000
        keys = np.arange(self._others, self._others + 4000)
        self._run(self.training.train, {one: np.append(keys, keys) for one in self.training.keys})


class SavesWithoutMemory(_WithoutMemory):
    """A save."""

    name = "memory_save"

    def act(self) -> None:
        """A save beside the good one."""
        self._saver.save(self.training.session, str(self.folder / "other"))


class RestoresWithoutMemory(_WithoutMemory):
    """A restore."""

    name = "memory_restore"

    def act(self) -> None:
        """A restore."""
        self._restore()


class UsesRawFilesWithoutMemory(_WithoutMemory):
    """Raw files are written and read."""

    name = "memory_raw"

    def act(self) -> None:
        """A dump and a load."""
        self._run(self._dump)
        self._run(self._load)


SCENARIOS = (
    LooksUpWithoutMemory,
    TrainsWithoutMemory,
    SavesWithoutMemory,
    RestoresWithoutMemory,
    UsesRawFilesWithoutMemory,
)
