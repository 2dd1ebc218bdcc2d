"""IncrementalSaver: DeepRec's Saver of incremental checkpoints."""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder, tables_of_graph


class IncrementalSaver(tf.compat.v1.train.Saver):
    """A Saver whose checkpoints hold the rows of tables that have changed since the last checkpoint.

    Ordinary variables are in them in full. The first checkpoint of a session is a full one, as in
    `IncrementalCheckpointHook`. Any Saver restores the checkpoints, together with those that they build on.
    With several ranks, every rank saves. `max_to_keep` counts those of earlier sessions too.
    """

    def __init__(
        self,
        *args: Any,
        saver_def: Any = None,
        builder: Any = None,
        incremental_include_normal_var: bool = False,
        **kwargs: Any,
    ) -> None:
        """Creates the Saver.

        Args:
          *args: The positional arguments of `tf.compat.v1.train.Saver`.
          saver_def: DeepRec's definition of the full Saver. Not used: a checkpoint names those that it
            builds on.
          builder: Not used.
          incremental_include_normal_var: Not used: ordinary variables are always saved.
          **kwargs: The other arguments of `tf.compat.v1.train.Saver`.
        """
        del saver_def, builder, incremental_include_normal_var
        self._track_changes: tf.Operation | None = None
        self._tracked: weakref.WeakSet[Any] = weakref.WeakSet()
        super().__init__(*args, builder=IncrementalBuilder(), **kwargs)

    def build(self, filename_tensor: Any = None) -> None:
        """Adds the ops to the default graph. `filename_tensor` is DeepRec's, and not used."""
        del filename_tensor
        super().build()
        tables = tables_of_graph()
        if tables:
            self._track_changes = native.ops.sok_track_changes([table.handle for table in tables])

    def incremental_save(
        self,
        sess: Any,
        save_path: str,
        global_step: Any = None,
        meta_graph_suffix: str = "meta",
        write_state: bool = True,
    ) -> str | None:
        """Saves an incremental checkpoint to `save_path`, or to `save_path-global_step`; returns its prefix.

        The arguments are those of `tf.compat.v1.train.Saver.save`.
        """
        if self._track_changes is not None and sess not in self._tracked:
            sess.run(self._track_changes)
            self._tracked.add(sess)
        return self.save(
            sess,
            save_path,
            global_step,
            meta_graph_suffix=meta_graph_suffix,
            write_meta_graph=False,
            write_state=write_state,
        )

    def incremental_restore(self, sess: Any, save_path: str | None, incr_save_path: str) -> None:
        """Restores the incremental checkpoint at `incr_save_path` and what it builds on.

        Args:
          sess: The session.
          save_path: DeepRec's full checkpoint. Not used: the incremental one names it.
          incr_save_path: The prefix of the incremental checkpoint.
        """
        del save_path
        self.restore(sess, incr_save_path)

    @property
    def last_incr_checkpoints(self) -> list[str]:
        """The prefixes of this Saver's checkpoints that were not removed, oldest first."""
        return self.last_checkpoints


def incremental_saver_of(incremental_save_restore: bool, full_saver: Any) -> IncrementalSaver | None:
    """Returns a built IncrementalSaver of the default graph, None if `incremental_save_restore` is false.

    DeepRec's `incremental_saver._get_incremental_saver`. `full_saver` is the Saver beside it.
    """
    del full_saver
    if not incremental_save_restore:
        return None
    saver = IncrementalSaver(sharded=True, allow_empty=True, defer_build=True)
    saver.build()
    return saver
