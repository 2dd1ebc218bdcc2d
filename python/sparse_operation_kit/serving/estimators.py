"""Exports of Estimators: in TensorFlow's own ops on request, and over ranks by rank 0, with all rows.

All ranks export, and would write to the same folder. The tasks of a cluster with parameter servers
export and evaluate in sessions of their own, with tables of one process.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.checkpoint import reader
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.exporting import into_new_folder
from sparse_operation_kit.lookup.group import reading_only
from sparse_operation_kit.newer_python import set_within
from sparse_operation_kit.ranks.communicator import alone, communicator
from sparse_operation_kit.serving.session_exports import Together
from sparse_operation_kit.serving.stock_models import rewrite
from sparse_operation_kit.serving.stock_tables import Absent, StockOptions, session_on_host
from sparse_operation_kit.tables.table_device import servers_of_config

# The options of the exports that are being made; None: with this library's ops.
_stock_options: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar(
    "sok_stock_options", default=None
)
# Whether exporters of train_and_evaluate run.
_rank_0_decides = contextvars.ContextVar("sok_rank_0_decides", default=False)


def export_saved_model(
    estimator: Any,
    export_dir_base: str,
    serving_input_receiver_fn: Callable,
    *,
    absent: Absent | Mapping[str, Absent] | None = None,
    row_dtype: tf.DType = tf.float32,
    **kwargs: Any,
) -> Any:
    """`Estimator.export_saved_model`, with a SavedModel that needs nothing but TensorFlow.

    Args:
      estimator: A `tf.estimator.Estimator`.
      export_dir_base: The parent of the model's folder, which is named by the time.
      serving_input_receiver_fn: As of the Estimator.
      absent: As in `sok.serving.export`.
      row_dtype: As in `sok.serving.export`.
      **kwargs: The other arguments of the Estimator's method.

    Returns:
      The folder, as bytes like the Estimator's, on all ranks. All ranks must call it.

    Raises:
      CheckpointError: `absent` must be given, or the model cannot be written; on rank 0.
      FailedPreconditionError: Not all ranks have called it within 30 seconds, or rank 0 failed.
      ValueError: As of `sok.serving.export`.
    """
    with _in_stock_ops(absent, row_dtype):
        return estimator.export_saved_model(export_dir_base, serving_input_receiver_fn, **kwargs)


def Exporter(  # noqa: N802 - to a caller it is a class, as the exporters of tf.estimator
    exporter: Any,
    *,
    absent: Absent | Mapping[str, Absent] | None = None,
    row_dtype: tf.DType = tf.float32,
) -> Any:
    """Returns an exporter whose SavedModels need nothing but TensorFlow, around one of `tf.estimator`.

    For `EvalSpec(exporters=...)`::

        sok.serving.Exporter(tf.estimator.BestExporter(serving_input_receiver_fn=receiver), absent="zeros")

    Args:
      exporter: The exporter that says when to export, and where.
      absent: As in `export`.
      row_dtype: As in `export`.

    Raises:
      ValueError: `row_dtype` is none of the possible types.
      RuntimeError: This TensorFlow version has no Estimator.
    """
    compat.require_estimator()
    StockOptions(absent, row_dtype)
    return _exporter_class()(exporter, absent, row_dtype)


@functools.lru_cache(maxsize=None)
def _exporter_class() -> type:
    # Not at import, because this TensorFlow may have no Estimator.
    class StockExporter(tf.compat.v1.estimator.Exporter):
        """An exporter around another one."""

        def __init__(self, exporter: Any, absent: Any, row_dtype: tf.DType) -> None:
            self._exporter, self._absent, self._row_dtype = exporter, absent, row_dtype

        @property
        def name(self) -> str:
            """The name of the wrapped exporter, which is that of its folder."""
            return self._exporter.name

        def export(self, *args: Any, **kwargs: Any) -> Any:
            """Exports if the wrapped exporter does, with its arguments and results."""
            with _in_stock_ops(self._absent, self._row_dtype):
                return self._exporter.export(*args, **kwargs)

    return StockExporter


def _in_stock_ops(absent: Any, row_dtype: tf.DType) -> contextlib.AbstractContextManager[None]:
    return set_within(_stock_options, {"absent": absent, "row_dtype": row_dtype})


@replacements.wraps("tf.compat.v1.estimator.Estimator._export_all_saved_models")
def _by_rank_0(original, self, export_dir_base, input_receiver_fn_map, *args, checkpoint_path=None, **kwargs):
    checkpoint_path = checkpoint_path or self.latest_checkpoint()
    kwargs["checkpoint_path"] = checkpoint_path

    def write(base, *arguments, **keywords):
        # Requests to a served model add no rows.
        only_serves = set(input_receiver_fn_map) == {tf.compat.v1.estimator.ModeKeys.PREDICT}
        with reading_only() if only_serves else contextlib.nullcontext():
            return original(self, base, input_receiver_fn_map, *arguments, **keywords)

    if _stock_options.get() is not None:
        write = functools.partial(_write_and_rewrite, write)
    is_one_process = communicator().size == 1 and not servers_of_config()
    if is_one_process or not _has_tables(checkpoint_path):
        return write(export_dir_base, *args, **kwargs)
    return export_by_rank_0(lambda: write(export_dir_base, *args, **kwargs), export_dir_base)


def export_by_rank_0(export: Callable[[], bytes], export_dir_base: Any) -> bytes | None:
    """Lets rank 0 export an Estimator's model, with the rows of all ranks.

    Args:
      export: Writes the model and returns its folder, which is named by a number in `export_dir_base`.
      export_dir_base: A path.

    Returns:
      The folder, on all ranks. All must call it. But where rank 0 decides whether to export, the others
      return None and need not call it.

    Raises:
      FailedPreconditionError: Not all ranks have called it within 30 seconds, or rank 0 failed.
    """
    is_rank_0 = communicator().rank == 0
    if _rank_0_decides.get() or communicator().size == 1:
        if is_rank_0:
            with alone():
                return export()
        # Exporters look for old exports there, maybe before rank 0 has made it.
        tf.io.gfile.makedirs(export_dir_base)
        return None
    with tf.Graph().as_default(), session_on_host() as session:
        together = Together("export_saved_model")
        together.begin(session)
        stamp = 0
        with together.ending(session):
            if is_rank_0:
                with alone():
                    stamp = int(os.path.basename(export()))
        stamp = together.numbers(session, stamp).max()
    return os.path.join(os.fsencode(export_dir_base), b"%d" % stamp)


def rank_0_decides() -> contextlib.AbstractContextManager[None]:
    """Returns a context for exporters: ranks evaluate on different data, and rank 0's results decide."""
    return set_within(_rank_0_decides, True)


@replacements.wraps(
    "tensorflow_estimator.python.estimator.training._TrainingExecutor._Evaluator.evaluate_and_export"
)
def _of_rank_0(original, self):
    with rank_0_decides():
        return original(self)


def _write_and_rewrite(write: Callable, base: Any, *args: Any, **kwargs: Any) -> bytes:
    """Lets an Estimator write its model beside where it belongs, and rewrites it in TensorFlow's own ops."""
    folder = Path(os.fsdecode(base))
    folder.mkdir(parents=True, exist_ok=True)
    # No server takes a folder for a model whose name is no number.
    with tempfile.TemporaryDirectory(prefix="temp-sok-", dir=folder) as beside:
        written = Path(os.fsdecode(write(beside, *args, **kwargs)))
        stamp = int(written.name)
        while (folder / str(stamp)).exists():
            stamp += 1
        to = folder / str(stamp)
        into_new_folder(to, lambda new: rewrite(written, new, **_stock_options.get() or {}))
    return os.fsencode(to)


@replacements.wraps("tf.compat.v1.estimator.Estimator._call_model_fn_eval")
def _in_one_process(original, self, *args, **kwargs):
    is_of_cluster = communicator().size == 1 and servers_of_config()
    with alone() if is_of_cluster else contextlib.nullcontext():
        return original(self, *args, **kwargs)


def _has_tables(checkpoint: Any) -> bool:
    """Returns whether a checkpoint, which may be None or unreadable, has tables."""
    try:
        found = None if checkpoint is None else reader.open_saved(checkpoint)
    except CheckpointError:
        return False
    return found is not None and bool(found.tables)
