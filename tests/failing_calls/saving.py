"""Saves of all kinds fail, and what they remove."""

from __future__ import annotations

import re
from pathlib import Path

import tensorflow as tf

import sparse_operation_kit as sok
from failing_calls.scenario import Trains
from sparse_operation_kit.deeprec import IncrementalSaver

v1 = tf.compat.v1


class Saves(Trains):
    """Full checkpoints of which one is kept: each save removes the one before."""

    name = "save"
    # How many checkpoints each Saver keeps, and there are with those of all Savers.
    kept, kept_in_all = 1, (1,)
    # Otherwise removals sync folders too, and do not fail a save.
    _syncs_only_to_save = True
    _saves_to_remove = 1

    def __init__(self, folder: Path) -> None:
        """Builds the training and its Savers."""
        super().__init__(folder)
        with self.training.graph.as_default():
            self._build()

    def start(self) -> None:
        """Trains and saves some steps, or goes on after a kill."""
        super().start()
        latest = tf.train.latest_checkpoint(str(self.folder))
        self._restored = latest is not None
        if self._restored:
            self._saver.recover_last_checkpoints([latest])
            self._saver.restore(self.training.session, latest)
        self._started()
        if not self._restored:
            for _ in range(3):
                self._step_and_save()

    def _build(self) -> None:
        self._saver = v1.train.Saver(max_to_keep=self.kept)

    def _started(self) -> None:
        pass

    def _save(self) -> None:
        self._saver.save(self.training.session, str(self.folder / "model"), self.training.steps())

    def _step_and_save(self) -> None:
        self.training.take_steps()
        self._save()

    def prepare(self) -> None:
        """A step."""
        self.training.take_steps()
        self._at = self.training.steps()

    def act(self) -> None:
        """A save."""
        self._save()

    def check(self, error: Exception | None) -> None:
        """The latest checkpoint is right, and the next saves leave nothing but what is kept."""
        if error is not None:
            self.check_error(error)
        if self._syncs_only_to_save:
            self.check_synced(error)
        restored = self._check_latest()
        assert restored in ([self._at] if error is None else [self._at - 1, self._at, self._before()]), (
            restored
        )
        self._check_next_saves()

    def _before(self) -> int:
        return self._at - 1

    def recover(self) -> None:
        """As `check`, of what a killed process left."""
        assert self._restored
        self.reference.check(self.training)
        self._check_next_saves()
        for path in self.folder.iterdir():
            path.unlink()

    def _check_latest(self) -> int:
        latest = tf.train.latest_checkpoint(str(self.folder))
        self._saver.restore(self.training.session, latest)
        return self.reference.check(self.training)

    def _check_next_saves(self) -> None:
        self._step_and_save()
        self.check_nothing_left()
        self._step_and_save()
        self._check_latest()
        for _ in range(self._saves_to_remove):
            self._step_and_save()
        indexes = [name for name in self.names() if name.endswith(".index")]
        assert len(indexes) in self.kept_in_all, f"kept: {self.names()}"
        data = [name for name in self.names() if ".data-" in name]
        stems = {re.sub(r"\.(sok-)?index$", "", name) for name in self.names() if name.endswith("index")}
        assert all(name.split(".data-")[0] in stems for name in data), f"kept: {self.names()}"


class SavesOfOnePrefix(Saves):
    """Each save replaces the checkpoint before."""

    name = "same_prefix"

    def _save(self) -> None:
        self._saver.save(self.training.session, str(self.folder / "model"))


class IncrementsOfHook(Saves):
    """Incremental checkpoints of the hook, of which one is kept, with all that it builds on."""

    name = "hook"
    _syncs_only_to_save = False

    def _build(self) -> None:
        self._hook = sok.IncrementalCheckpointHook(str(self.folder), save_steps=1, max_to_keep=self.kept)
        self._saver = v1.train.Saver(max_to_keep=None)

    def _started(self) -> None:
        # It starts threads.
        self._hook.begin()
        self._hook.after_create_session(self.training.session, None)

    def _save(self) -> None:
        self._hook._save(self.training.session, self.training.steps())


class IncrementsOfSaver(Saves):
    """Incremental checkpoints of DeepRec's Saver between full ones, of which two are kept."""

    name = "increments"
    kept, kept_in_all = 2, (2, 3, 4)
    # Every third checkpoint is full. The step of `act`, modulo 3:
    phase = 1
    _syncs_only_to_save = False
    # One that is full is among them.
    _saves_to_remove = 4

    def _build(self) -> None:
        super()._build()
        self._incremental = IncrementalSaver(max_to_keep=self.kept)

    def _save(self) -> None:
        if self.training.steps() % 3 == 0:
            super()._save()
        else:
            self._incremental.incremental_save(
                self.training.session, str(self.folder / "model"), self.training.steps()
            )

    def prepare(self) -> None:
        """Steps and saves up to the step of `act`."""
        while (self.training.steps() + 1) % 3 != self.phase:
            self._step_and_save()
        super().prepare()


class FullAfterIncrements(IncrementsOfSaver):
    """The full checkpoints of the same, which make incremental ones unnecessary."""

    name = "full_after_increments"
    phase = 0


SCENARIOS = (Saves, SavesOfOnePrefix, IncrementsOfHook, IncrementsOfSaver, FullAfterIncrements)
