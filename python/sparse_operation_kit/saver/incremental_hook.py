"""A session hook that saves the rows that have changed since the last checkpoint."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.compat.internals import saver as tf_saver
from sparse_operation_kit.saver import agreed_timer, checkpoint_save
from sparse_operation_kit.tables import table_parts
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


class IncrementalBuilder(tf_saver.BulkSaverBuilder):
    """The builder of a Saver that saves only rows that have changed since the last checkpoint."""

    sok_incremental = True


def tables_of_graph() -> list[EmbeddingVariable]:
    """Returns the embedding variables of the default graph."""
    return [
        variable
        for variable in tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        if isinstance(variable, EmbeddingVariable)
    ]


class IncrementalCheckpointHook(tf.compat.v1.train.SessionRunHook):
    """Saves the rows of tables that have changed since the last checkpoint, and everything else in full.

    Use it in addition to the `CheckpointSaverHook` that saves everything at longer intervals; a
    `MonitoredTrainingSession` and an Estimator add that one by themselves. Incremental checkpoints are
    ordinary checkpoints: `tf.train.latest_checkpoint` finds them, and any Saver restores them together with
    the checkpoints that they build on. Those are kept as long as they are needed. The first checkpoint of a
    session is a full one. Every rank needs the hook.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        *,
        save_secs: float | None = None,
        save_steps: int | None = None,
        checkpoint_basename: str = "model.ckpt",
        max_to_keep: int | None = 5,
    ) -> None:
        """Creates the hook. Give either `save_secs` or `save_steps`.

        Args:
          checkpoint_dir: The directory of the checkpoints, the same on all ranks and as in the
            `CheckpointSaverHook`.
          save_secs: Seconds between two checkpoints, by rank 0's clock.
          save_steps: Steps between two checkpoints.
          checkpoint_basename: The checkpoints' name without the step.
          max_to_keep: How many checkpoints of this hook to keep, those that it left in earlier sessions
            included. None or 0 keeps all.
        """
        # It is not a CheckpointSaverHook itself: an Estimator that finds one does not add its own.
        self._saves = _Saves(
            checkpoint_dir,
            save_secs=save_secs,
            save_steps=save_steps,
            checkpoint_basename=checkpoint_basename,
            **compat.WITHOUT_GRAPH_DEF,
        )
        self._saves.max_to_keep = max_to_keep

    def begin(self) -> None:
        """Builds the Saver. Raises ValueError if the graph has no embedding variable."""
        self._saves.begin()

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Makes the tables record which rows change."""
        self._saves.after_create_session(session, coord)

    def before_run(self, run_context: Any) -> Any:
        """Requests the global step."""
        return self._saves.before_run(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Saves, if it is time."""
        self._saves.after_run(run_context, run_values)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Saves at the end, if the last step is not saved."""
        self._saves.end(session)

    def _save(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Saves now, as the method of a CheckpointSaverHook does, which programs call for an extra save."""
        return self._saves._save(session, step)


class _Saves(tf.compat.v1.train.CheckpointSaverHook):
    """The hook that an IncrementalCheckpointHook runs."""

    max_to_keep: int | None

    def begin(self) -> None:
        tables = tables_of_graph()
        if not tables:
            raise ValueError("An IncrementalCheckpointHook needs embedding variables, and the graph has none")
        super().begin()
        self._saver = tf.compat.v1.train.Saver(
            sharded=True, max_to_keep=self.max_to_keep, builder=IncrementalBuilder()
        )
        # Checkpoints of earlier sessions in this directory may build on those in the directory of others.
        checkpoint_save.note_use(tf.compat.v1.get_default_graph(), self._save_path)
        self._track_changes = table_parts.track_changes(tables)

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        del coord
        agreed_timer.use_agreed_timer(self, session.graph)
        session.run(self._track_changes)
        self._timer.update_last_triggered_step(session.run(self._global_step_tensor))

    def _save(self, session: tf.compat.v1.Session, step: int) -> bool:
        # Otherwise the full checkpoint of the same step would be overwritten.
        if checkpoint_save.last_saved(session.graph) == f"{self._save_path}-{step}":
            return False
        return super()._save(session, step)
