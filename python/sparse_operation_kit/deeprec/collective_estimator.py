"""Models of a CollectiveStrategy: an Estimator that builds them in its scope; exports for one process."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup.group import reading_only
from sparse_operation_kit.ranks.communicator import alone, communicator
from sparse_operation_kit.serving.estimators import export_by_rank_0, rank_0_decides

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


def own_its_tables(graph: tf.Graph) -> None:
    """Gives tables unique names, so that a process can load several models with equally named tables."""
    identity = f"@{secrets.token_hex(8)}".encode()
    for table in graph_ops.tables_of(graph):
        name = table.get_attr("shared_name") + identity
        table._set_attr("shared_name", tf.compat.v1.AttrValue(s=name))


def export(
    savedmodel_dir: str,
    checkpoint_dir: str | None,
    signature_def_fn: Callable | None,
    *,
    assets_extra: dict[str, str] | None,
    as_text: bool,
    clear_devices: bool,
    strip_default_attrs: bool,
) -> str | None:
    """Implements `CollectiveStrategy.export_saved_model`."""
    if signature_def_fn is None or checkpoint_dir is None:
        raise ValueError("export_saved_model needs a checkpoint_dir and a signature_def_fn")
    prefix = _prefix(checkpoint_dir)
    if communicator().rank != 0:
        return None
    folder = _new_folder(savedmodel_dir)
    with alone(), reading_only(), tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        signatures = signature_def_fn()
        if not isinstance(signatures, dict):
            signatures = {tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signatures}
        own_its_tables(graph)
        saver = tf.compat.v1.train.Saver()
        saver.restore(session, prefix)
        builder = tf.compat.v1.saved_model.Builder(folder)
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.SERVING],
            signature_def_map=signatures,
            assets_collection=graph.get_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS),
            clear_devices=clear_devices,
            strip_default_attrs=strip_default_attrs,
            main_op=tf.compat.v1.train.Scaffold.default_local_init_op(),
            saver=saver,
        )
        builder.save(as_text)
    for path, source in (assets_extra or {}).items():
        target = os.path.join(folder, "assets.extra", path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
    return folder


def _prefix(checkpoint: str) -> str:
    prefix = tf.train.latest_checkpoint(checkpoint) if os.path.isdir(checkpoint) else checkpoint
    if not prefix or not tf.compat.v1.train.checkpoint_exists(prefix):
        raise ValueError(f"export_saved_model: there is no checkpoint at '{checkpoint}'")
    return prefix


def _new_folder(base: str) -> str:
    stamp = int(time.time())
    while os.path.exists(os.path.join(base, str(stamp))):
        stamp += 1
    return os.path.join(base, str(stamp))
