"""A session hook that saves what has changed since the last checkpoint."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.training import saver as tf_saver

from sparse_operation_kit import native
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.saver import agreed_timer, checkpoint_save


class IncrementalBuilder(tf_saver.BulkSaverBuilder):
    """The builder of a Saver that saves what has changed since the last checkpoint."""

    sok_incremental = True


class IncrementalCheckpointHook(tf.compat.v1.train.CheckpointSaverHook):
    """Saves the rows of tables that have changed since the last checkpoint, and all else in full.

    It stands beside the `CheckpointSaverHook` (which a `MonitoredTrainingSession` has by itself) that saves
    everything now and then. Its checkpoints are ordinary ones: `tf.train.latest_checkpoint` finds them, and
    any Saver restores them, together with those they build on, which stay as long as they are needed. The
    first one of a session is a full one. Every rank has the hook.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        *,
        save_secs: float | None = None,
        save_steps: int | None = None,
        checkpoint_basename: str = "model.ckpt",
        max_to_keep: int = 5,
    ) -> None:
        """Makes the hook.

        Args:
          checkpoint_dir: Where checkpoints go, the same on all ranks; that of the `CheckpointSaverHook`.
          save_secs: Seconds between two checkpoints, by rank 0's clock; or
          save_steps: steps between two checkpoints. One of the two must be given.
          checkpoint_basename: Of the checkpoints' names, before the step.
          max_to_keep: How many checkpoints of this hook to keep.
        """
        super().__init__(
            checkpoint_dir,
            save_secs=save_secs,
            save_steps=save_steps,
            checkpoint_basename=checkpoint_basename,
            save_graph_def=False,
        )
        self._max_to_keep = max_to_keep

    def begin(self) -> None:
        """Builds the Saver. Raises ValueError where the graph has no embedding variable."""
        tables = [
            variable
            for variable in tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
            if isinstance(variable, EmbeddingVariable)
        ]
        if not tables:
            raise ValueError("An IncrementalCheckpointHook needs embedding variables, and the graph has none")
        super().begin()
        self._saver = tf.compat.v1.train.Saver(
            sharded=True, max_to_keep=self._max_to_keep, builder=IncrementalBuilder()
        )
        self._track_changes = native.ops.sok_track_changes([table.handle for table in tables])

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Has the tables keep what changes from now on."""
        del coord
        agreed_timer.use_agreed_timer(self, session.graph)
        session.run(self._track_changes)
        self._timer.update_last_triggered_step(session.run(self._global_step_tensor))

    def _save(self, session: tf.compat.v1.Session, step: int) -> bool:
        # A full checkpoint of this very step would be overwritten.
        if checkpoint_save.last_saved(session.graph) == f"{self._save_path}-{step}":
            return False
        return super()._save(session, step)
