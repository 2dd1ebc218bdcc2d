"""DeepRec's incremental checkpoints: IncrementalSaver, and arguments of TensorFlow's classes."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.saver import IncrementalCheckpointHook
from sparse_operation_kit.saver.incremental_hook import IncrementalBuilder, tables_of_graph
from sparse_operation_kit.tables import table_parts


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
            self._track_changes = table_parts.track_changes(tables)

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


_logger = logging.getLogger(__name__)

# The methods of a hook that sessions call, besides `before_run` and `after_run`.
_OF_HOOKS = ("begin", "after_create_session", "end")


class _IncrementalSaves(IncrementalCheckpointHook):
    """An IncrementalCheckpointHook for any graph: without embedding variables it does nothing."""

    def __init__(self, checkpoint_dir: str, save_secs: float, basename: str = "model.ckpt") -> None:
        self._make = functools.partial(
            super().__init__, checkpoint_dir, save_secs=save_secs, checkpoint_basename=basename
        )

    def begin(self) -> None:
        if not tables_of_graph():
            _logger.warning("The graph has no embedding variable: there are no incremental checkpoints")
            self._saves: Any = tf.compat.v1.train.SessionRunHook()
            return
        self._make()
        super().begin()


def _checked(argument: str, seconds: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{argument} must be a number of seconds or None, not {seconds!r}")
    if not seconds > 0:
        raise ValueError(f"{argument} must be above 0, not {seconds}")
    return seconds


@replacements.wraps("tf.compat.v1.train.MonitoredTrainingSession")
def _monitored_training_session(original, *args, save_incremental_checkpoint_secs=None, **kwargs):
    if save_incremental_checkpoint_secs is None:
        return original(*args, **kwargs)
    seconds = _checked("save_incremental_checkpoint_secs", save_incremental_checkpoint_secs)
    arguments = inspect.signature(original).bind(*args, **kwargs).arguments
    directory = arguments.get("checkpoint_dir")
    if directory is not None:
        arguments["hooks"] = [*(arguments.get("hooks") or ()), _IncrementalSaves(directory, seconds)]
    return original(**arguments)


@replacements.wraps("tf.compat.v1.train.CheckpointSaverHook.__init__")
def _checkpoint_saver_hook(original, self, checkpoint_dir, *args, incremental_save_secs=None, **kwargs):
    original(self, checkpoint_dir, *args, **kwargs)
    if incremental_save_secs is not None:
        seconds = _checked("incremental_save_secs", incremental_save_secs)
        _run_too(self, _IncrementalSaves(checkpoint_dir, seconds, os.path.basename(self._save_path)))


def _run_too(hook: Any, other: tf.compat.v1.train.SessionRunHook) -> None:
    """Makes each call of a method of `hook` call that of `other` too. Changes the object, not its class."""
    own = {name: getattr(hook, name) for name in (*_OF_HOOKS, "before_run", "after_run")}

    def both(name: str) -> Callable:
        def call(*args: Any) -> None:
            own[name](*args)
            getattr(other, name)(*args)

        return call

    def before_run(context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs([own["before_run"](context).fetches, _fetches(context)])

    def _fetches(context: Any) -> Any:
        wanted = other.before_run(context)
        return [] if wanted is None else wanted.fetches

    def after_run(context: Any, values: Any) -> None:
        own["after_run"](context, values._replace(results=values.results[0]))
        other.after_run(context, values._replace(results=values.results[1]))

    for name in _OF_HOOKS:
        setattr(hook, name, both(name))
    hook.before_run, hook.after_run = before_run, after_run


# A checkpoint names those that it builds on, so full Savers restore incremental ones as they are.
@replacements.wraps("tf.compat.v1.train.Saver.__init__")
def _saver(
    original, self, *args, incremental_save_restore=None, incremental_include_normal_var=None, **kwargs
):
    del incremental_save_restore, incremental_include_normal_var
    original(self, *args, **kwargs)


@replacements.wraps("tf.compat.v1.train.Scaffold.__init__")
def _scaffold(original, self, *args, incremental_save_restore=None, **kwargs):
    del incremental_save_restore
    original(self, *args, **kwargs)


@replacements.wraps("tf.compat.v1.estimator.RunConfig.__init__")
def _run_config(original, self, *args, save_incremental_checkpoint_secs=None, **kwargs):
    original(self, *args, **kwargs)
    if save_incremental_checkpoint_secs is not None:
        seconds = _checked("save_incremental_checkpoint_secs", save_incremental_checkpoint_secs)
        self._sok_incremental_secs = seconds


@replacements.wraps("tf.compat.v1.estimator.Estimator.train")
def _estimator_train(original, self, input_fn, hooks=None, *args, **kwargs):
    seconds = getattr(self.config, "_sok_incremental_secs", None)
    if seconds is not None:
        hooks = [*(hooks or ()), _IncrementalSaves(self.model_dir, seconds)]
    return original(self, input_fn, hooks, *args, **kwargs)
