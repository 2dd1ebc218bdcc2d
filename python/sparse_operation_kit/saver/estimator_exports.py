"""Exports of Estimators over ranks: rank 0 writes the SavedModel, with all rows, for one process to load.

All ranks call an exporter, and would write to the same folder. The tasks of a cluster with parameter servers
export and evaluate in sessions of their own, with tables of one process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.checkpoint import reader
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.ranks.communicator import alone, communicator
from sparse_operation_kit.tables.table_device import servers_of_config


@replacements.implements("tf.compat.v1.estimator.Estimator._export_all_saved_models")
def _by_rank_0(original: Callable) -> Callable:
    @functools.wraps(original)
    def export_all_saved_models(self, export_dir_base, *args, checkpoint_path=None, **kwargs):
        checkpoint_path = checkpoint_path or self.latest_checkpoint()
        kwargs["checkpoint_path"] = checkpoint_path
        is_one_process = communicator().size == 1 and not servers_of_config()
        if is_one_process or not _has_tables(checkpoint_path):
            return original(self, export_dir_base, *args, **kwargs)
        if communicator().rank > 0:
            # Exporters look for old exports there, maybe before rank 0 has made it.
            tf.io.gfile.makedirs(export_dir_base)
            return None
        with alone():
            return original(self, export_dir_base, *args, **kwargs)

    return export_all_saved_models


@replacements.implements("tf.compat.v1.estimator.Estimator._call_model_fn_eval")
def _in_one_process(original: Callable) -> Callable:
    @functools.wraps(original)
    def call_model_fn_eval(self, *args, **kwargs):
        is_of_cluster = communicator().size == 1 and servers_of_config()
        with alone() if is_of_cluster else contextlib.nullcontext():
            return original(self, *args, **kwargs)

    return call_model_fn_eval


def _has_tables(checkpoint: Any) -> bool:
    """Returns whether a checkpoint, which may be None or unreadable, has tables."""
    try:
        found = None if checkpoint is None else reader.open_saved(checkpoint)
    except CheckpointError:
        return False
    return found is not None and bool(found.tables)
