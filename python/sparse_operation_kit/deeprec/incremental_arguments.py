"""DeepRec's arguments for incremental checkpoints, which TensorFlow's functions and classes do not have."""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.saver import IncrementalCheckpointHook
from sparse_operation_kit.saver.incremental_hook import tables_of_graph

_logger = logging.getLogger(__name__)

# The methods of a hook that sessions call, besides `before_run` and `after_run`.
_OF_HOOKS = ("begin", "after_create_session", "end")


class _IncrementalSaves(tf.compat.v1.train.SessionRunHook):
    """An IncrementalCheckpointHook for any graph: without embedding variables it does nothing."""

    def __init__(self, checkpoint_dir: str, save_secs: float, basename: str = "model.ckpt") -> None:
        self._make = functools.partial(
            IncrementalCheckpointHook, checkpoint_dir, save_secs=save_secs, checkpoint_basename=basename
        )
        self._hook: Any = None

    def begin(self) -> None:
        if not tables_of_graph():
            _logger.warning("The graph has no embedding variable: there are no incremental checkpoints")
            self._hook = tf.compat.v1.train.SessionRunHook()
            return
        self._hook = self._make()
        self._hook.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._hook.after_create_session(session, coord)

    def before_run(self, run_context: Any) -> Any:
        return self._hook.before_run(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._hook.after_run(run_context, run_values)

    def end(self, session: Any) -> None:
        self._hook.end(session)


def _checked(argument: str, seconds: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{argument} must be a number of seconds or None, not {seconds!r}")
    if not seconds > 0:
        raise ValueError(f"{argument} must be above 0, not {seconds}")
    return seconds


@replacements.implements("tf.compat.v1.train.MonitoredTrainingSession")
def _monitored_training_session(original: Callable) -> Callable:
    @functools.wraps(original)
    def monitored_training_session(*args, save_incremental_checkpoint_secs=None, **kwargs):
        if save_incremental_checkpoint_secs is None:
            return original(*args, **kwargs)
        seconds = _checked("save_incremental_checkpoint_secs", save_incremental_checkpoint_secs)
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        directory = arguments.get("checkpoint_dir")
        if directory is not None:
            arguments["hooks"] = [*(arguments.get("hooks") or ()), _IncrementalSaves(directory, seconds)]
        return original(**arguments)

    return monitored_training_session


@replacements.implements("tf.compat.v1.train.CheckpointSaverHook.__init__")
def _checkpoint_saver_hook(original: Callable) -> Callable:
    @functools.wraps(original)
    def init(self, checkpoint_dir, *args, incremental_save_secs=None, **kwargs):
        original(self, checkpoint_dir, *args, **kwargs)
        if incremental_save_secs is not None:
            seconds = _checked("incremental_save_secs", incremental_save_secs)
            _run_too(self, _IncrementalSaves(checkpoint_dir, seconds, os.path.basename(self._save_path)))

    return init


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


def _without(*names: str) -> Callable[[Callable], Callable]:
    """Returns a wrapper for an `__init__` that accepts arguments of these names and ignores them."""

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def init(self, *args, **kwargs):
            for name in names:
                kwargs.pop(name, None)
            original(self, *args, **kwargs)

        return init

    return wrap


# A checkpoint names those that it builds on, so full Savers restore incremental ones as they are.
replacements.implements("tf.compat.v1.train.Saver.__init__")(
    _without("incremental_save_restore", "incremental_include_normal_var")
)
replacements.implements("tf.compat.v1.train.Scaffold.__init__")(_without("incremental_save_restore"))


@replacements.implements("tf.compat.v1.estimator.RunConfig.__init__")
def _run_config(original: Callable) -> Callable:
    @functools.wraps(original)
    def init(self, *args, save_incremental_checkpoint_secs=None, **kwargs):
        original(self, *args, **kwargs)
        if save_incremental_checkpoint_secs is not None:
            seconds = _checked("save_incremental_checkpoint_secs", save_incremental_checkpoint_secs)
            self._sok_incremental_secs = seconds

    return init


@replacements.implements("tf.compat.v1.estimator.Estimator.train")
def _estimator_train(original: Callable) -> Callable:
    @functools.wraps(original)
    def train(self, input_fn, hooks=None, *args, **kwargs):
        seconds = getattr(self.config, "_sok_incremental_secs", None)
        if seconds is not None:
            hooks = [*(hooks or ()), _IncrementalSaves(self.model_dir, seconds)]
        return original(self, input_fn, hooks, *args, **kwargs)

    return train
