"""The Estimator of a CollectiveStrategy, which builds models in its scope; names of exports."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.serving.estimators import export_by_rank_0, rank_0_decides
from sparse_operation_kit.serving.table_models import own_its_tables

# DeepRec arguments that are not needed, because batches may have any size.
_UNUSED = ("train_drop_remainder", "eval_drop_remainder", "predict_drop_remainder")


def make_estimator(strategy: Any, model_fn: Callable, **kwargs: Any) -> Any:
    """Returns the Estimator of `CollectiveStrategy.estimator`."""
    compat.require_estimator()
    for name in _UNUSED:
        kwargs.pop(name, None)
    return _estimator_class()(strategy, model_fn, **kwargs)


def _evaluation_hook(
    estimator: Any, spec: Any, every_n_iter: int, max_steps: int | None, history: list | None
) -> tf.compat.v1.train.CheckpointSaverHook:
    """Returns a hook that saves a checkpoint every `every_n_iter` steps, evaluates and exports it."""

    class Evaluate(tf.compat.v1.train.CheckpointSaverListener):
        """Evaluates each checkpoint that is saved."""

        def after_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
            del session
            metrics = estimator.evaluate(spec.input_fn, spec.steps, spec.hooks, name=spec.name)
            if history is not None:
                history.append(metrics)
            is_final = max_steps is not None and global_step_value >= max_steps
            if communicator().rank > 0:
                return
            with rank_0_decides():
                for exporter in spec.exporters:
                    folder = os.path.join(estimator.model_dir, "export", exporter.name)
                    exporter.export(estimator, folder, estimator.latest_checkpoint(), metrics, is_final)

    return tf.compat.v1.train.CheckpointSaverHook(
        estimator.model_dir, save_steps=every_n_iter, listeners=[Evaluate()]
    )


@functools.lru_cache(maxsize=None)
def _estimator_class() -> type:
    # Not at import, because this TensorFlow may have no Estimator.
    class CollectiveEstimator(tf.compat.v1.estimator.Estimator):
        """An Estimator whose models are built for all ranks."""

        def __init__(self, strategy: Any, model_fn: Callable, **kwargs: Any) -> None:
            super().__init__(model_fn, **kwargs)
            self._strategy = strategy
            self._is_exporting = False

        def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
            with self._strategy.scope():
                spec = super()._call_model_fn(features, labels, mode, config)
            if self._is_exporting:
                own_its_tables(tf.compat.v1.get_default_graph())
            return spec

        def _export_all_saved_models(self, export_dir_base: str, *args: Any, **kwargs: Any) -> Any:
            export = super()._export_all_saved_models
            self._is_exporting = True
            try:
                # Without tables too.
                return export_by_rank_0(lambda: export(export_dir_base, *args, **kwargs), export_dir_base)
            finally:
                self._is_exporting = False

        def train_and_evaluate(
            self,
            train_spec: Any,
            eval_spec: Any,
            eval_every_n_iter: int | None = None,
            eval_history: list | None = None,
        ) -> Any:
            """Trains, and every `eval_every_n_iter` steps saves a checkpoint and evaluates it.

            Args:
              train_spec: A tf.estimator.TrainSpec.
              eval_spec: A tf.estimator.EvalSpec. Its exporters run on rank 0 after each evaluation.
              eval_every_n_iter: Steps between two evaluations; None: the model is not evaluated.
              eval_history: A list to which the metrics of each evaluation are appended.

            Returns:
              The Estimator.

            Raises:
              ValueError: `eval_spec` has exporters, but without `eval_every_n_iter` nothing is evaluated.
            """
            if eval_spec.exporters and eval_every_n_iter is None:
                names = ", ".join(repr(exporter.name) for exporter in eval_spec.exporters)
                raise ValueError(
                    f"train_and_evaluate: the exporters {names} run after evaluations, and without "
                    "eval_every_n_iter there are none"
                )
            hooks = list(train_spec.hooks)
            if eval_every_n_iter is not None:
                hooks.append(
                    _evaluation_hook(self, eval_spec, eval_every_n_iter, train_spec.max_steps, eval_history)
                )
            return self.train(train_spec.input_fn, hooks=hooks, max_steps=train_spec.max_steps)

        @staticmethod
        def _assert_members_are_not_overridden(estimator: Any = None) -> None:
            """Disables Estimator's own check, which would refuse the members above."""
            del estimator

    return CollectiveEstimator


def checked_prefix(checkpoint: str) -> str:
    """Returns the prefix of a checkpoint, given it or a directory. Raises ValueError if there is none."""
    prefix = tf.train.latest_checkpoint(checkpoint) if os.path.isdir(checkpoint) else checkpoint
    if not prefix or not tf.compat.v1.train.checkpoint_exists(prefix):
        raise ValueError(f"export_saved_model: there is no checkpoint at '{checkpoint}'")
    return prefix


def new_folder(base: str) -> str:
    """Returns the path of a folder in `base` that is not there, named by the time."""
    stamp = int(time.time())
    while os.path.exists(os.path.join(base, str(stamp))):
        stamp += 1
    return os.path.join(base, str(stamp))
