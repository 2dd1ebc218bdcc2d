"""Exports of a session's model: as a SavedModel, or as a frozen graph, in TensorFlow's own ops."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.checkpoint.exporting import into_new_folder
from sparse_operation_kit.checkpoint.locate import open_checkpoint
from sparse_operation_kit.graphs import graph_keys, graph_ops
from sparse_operation_kit.ranks.agreement import agree
from sparse_operation_kit.ranks.communicator import alone, communicator
from sparse_operation_kit.serving.stock_graph import StockGraph
from sparse_operation_kit.serving.stock_models import write_stock_model
from sparse_operation_kit.serving.stock_tables import Absent, StockOptions

# How long ranks wait for each other before an export begins.
_PATIENCE_SECONDS = 30


class Together:
    """Makes all ranks begin and end an export together."""

    def __init__(self, what: str) -> None:
        """Adds the ops to the default graph.

        Args:
          what: The function that exports, for messages; the same on all ranks.
        """
        self._what = what
        self._number = tf.compat.v1.placeholder(tf.int64, [], name="export_number")
        self._of_all = agree(tf.reshape(self._number, [1]), f"{what}: an export for serving")

    def begin(self, session: tf.compat.v1.Session) -> None:
        """Waits for all ranks. Raises FailedPreconditionError if one does not come."""
        try:
            options = tf.compat.v1.RunOptions(timeout_in_ms=_PATIENCE_SECONDS * 1000)
            # The first time may meet a call on which another rank gave up.
            for _ in range(2):
                session.run(self._of_all, {self._number: 0}, options=options)
        except tf.errors.DeadlineExceededError:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"{self._what}: not all {communicator().size} ranks have called it within "
                f"{_PATIENCE_SECONDS} seconds. All must, as each has a part of the rows",
            ) from None

    @contextlib.contextmanager
    def ending(self, session: tf.compat.v1.Session) -> Iterator[None]:
        """Returns a context that all ranks leave together. If one fails in it, the others raise."""
        try:
            yield
        except Exception:
            self.numbers(session, 1)
            raise
        if self.numbers(session, 0).any():
            raise tf.errors.FailedPreconditionError(
                None, None, f"{self._what}: another rank failed; its error has the reason"
            )

    def numbers(self, session: tf.compat.v1.Session, number: int) -> np.ndarray:
        """Returns the number that each rank gives, int64 [ranks]. All ranks call it."""
        return session.run(self._of_all, {self._number: number})[:, 0]


def export(
    session: tf.compat.v1.Session,
    folder: str | os.PathLike,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    absent: Absent | Mapping[str, Absent] | None = None,
    row_dtype: tf.DType = tf.float32,
) -> str:
    """Writes a session's model as a SavedModel that needs nothing but TensorFlow.

    The signature "serving_default" goes from `inputs` to `outputs`. Only what outputs depend on is written:
    lookups become TensorFlow's own ops, tables their rows without the optimizer's slots. The rows of all
    ranks and parameter servers are in the model. Adds ops to the session's graph.

    Memory of rank 0: the model's variables and tables. On the disk beside `folder`, while it runs: a
    checkpoint of the tables.

    Args:
      session: The session. Nothing may train in it meanwhile.
      folder: The folder to create. It appears when it is complete.
      inputs: Tensors, `SparseTensor`s and `RaggedTensor`s by name.
      outputs: The same. Their names are TensorFlow Serving's.
      absent: What ids without a row read as: "zeros", a number for every column, or a row; a dictionary has
        one of these by the names of tables. None: as in the trained model, if TensorFlow's own ops can
        compute that; they cannot compute random initial rows.
      row_dtype: The type of stored rows: float32, float16, bfloat16 or int8, which has a scale for each row.
        Lookups give float32. The log says how much it changes weights.

    Returns:
      `folder`, on all ranks. All ranks must call it.

    Raises:
      CheckpointError: `folder` exists or cannot be written, or `absent` must be given; on rank 0.
      FailedPreconditionError: Not all ranks have called it within 30 seconds, or rank 0 failed.
      ValueError: `row_dtype` is another type; or the outputs depend on an op of this library that has no
        counterpart, such as a table's size, or on a lookup in a function of a dataset.
    """
    options = StockOptions(absent, row_dtype)
    graph, to = session.graph, Path(os.path.abspath(os.fspath(folder)))
    with graph.as_default():
        given = _model(graph, inputs, outputs)
        saver = _saver_for(graph, graph_ops.ops_needed_by(_ops_of(outputs)))
        together = Together("sok.serving.export")
    together.begin(session)
    # Beside the folder, because all ranks must see it.
    with together.ending(session), _removed_after(to.with_name(f"{to.name}.sok-tables")) as beside:
        prefix = beside / "model"
        with graph.as_default():
            saver.save(session, str(prefix), write_meta_graph=False, write_state=False)
        if communicator().rank == 0:
            assets = [one.name for one in graph.get_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS)]
            with alone():  # the other ranks wait
                into_new_folder(to, lambda new: write_stock_model(given, prefix, new, options, assets))
    return os.fspath(folder)


def freeze(
    session: tf.compat.v1.Session,
    graph_def: tf.compat.v1.GraphDef,
    outputs: Sequence[str],
    *,
    absent: Absent | Mapping[str, Absent] | None = None,
    row_dtype: tf.DType = tf.float32,
) -> tf.compat.v1.GraphDef:
    """Returns a graph whose tables are constants and whose lookups are TensorFlow's own ops.

    Ids are found by binary search. Ordinary variables stay: `convert_variables_to_constants` does both.

    Args:
      session: A session with the values of the tables, of one process.
      graph_def: The graph, which may be a part of the session's.
      outputs: The names of the ops to keep, with all that they depend on.
      absent: As in `export`.
      row_dtype: As in `export`.

    Raises:
      ValueError: A table takes more than 256 MiB, or as in `export`.
      CheckpointError: `absent` must be given.
    """
    if communicator().size > 1:
        raise ValueError("A graph over several ranks cannot be frozen: export it with sok.serving.export")
    options = StockOptions(absent, row_dtype, as_constants=True)
    source = tf.Graph()
    with source.as_default():
        tf.import_graph_def(graph_def, name="")
    needed = {op.name for op in graph_ops.ops_needed_by(map(source.get_operation_by_name, outputs))}
    tables = [one for one in graph_keys.embedding_variables(session.graph) if one.m_var_name in needed]
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "model")
        if tables:
            with session.graph.as_default():
                saver = tf.compat.v1.train.Saver(tables)
                saver.save(session, prefix, write_meta_graph=False, write_state=False)
        part = StockGraph(source, lambda name: open_checkpoint(prefix).select([name])[0].open(), options)
        part.add(outputs)
        options.check_names(part.tables)
        return part.definition()


@replacements.wraps("tf.compat.v1.graph_util.convert_variables_to_constants")
def _with_tables(
    original,
    sess,
    input_graph_def,
    output_node_names,
    variable_names_whitelist=None,
    variable_names_blacklist=None,
):
    tables = set(graph_ops.tables_behind_nodes(input_graph_def, output_node_names))
    frozen = tables - set(variable_names_blacklist or ())
    if variable_names_whitelist is not None:
        frozen &= set(variable_names_whitelist)
    if frozen and frozen != tables:
        left = ", ".join(f"'{name}'" for name in sorted(tables - frozen))
        raise ValueError(f"Either all tables of a graph become constants, or none: {left} would be left")
    if frozen:
        input_graph_def = freeze(sess, input_graph_def, output_node_names)
    return original(
        sess, input_graph_def, output_node_names, variable_names_whitelist, variable_names_blacklist
    )


def _model(graph: tf.Graph, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    """Returns the MetaGraphDef of a model with one signature."""
    given = tf.compat.v1.train.export_meta_graph(graph=graph, clear_devices=True)
    given.meta_info_def.tags.append(tf.saved_model.SERVING)
    signature = tf.compat.v1.saved_model.predict_signature_def(dict(inputs), dict(outputs))
    given.signature_def[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY].CopyFrom(signature)
    initializers = graph.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    given.collection_def["legacy_init_op"].node_list.value.extend(one.name for one in initializers)
    return given


def _ops_of(tensors: Mapping[str, Any]) -> list[tf.Operation]:
    return [component.op for one in tensors.values() for component in tf.nest.flatten(one, True)]


def _saver_for(graph: tf.Graph, ops: Iterable[tf.Operation]) -> tf.compat.v1.train.Saver:
    """Returns a Saver of the tables and variables that belong to these ops."""
    names = {op.name for op in ops}
    known = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    model = graph.get_collection(tf.compat.v1.GraphKeys.MODEL_VARIABLES)
    tables = graph_keys.embedding_variables(graph)
    needed = {id(one): one for one in [*known, *model, *tables] if one.op.name in names}
    return tf.compat.v1.train.Saver(list(needed.values()))


@contextlib.contextmanager
def _removed_after(folder: Path) -> Iterator[Path]:
    """Returns a context with a folder that rank 0 removes at its end."""
    try:
        yield folder
    finally:
        if communicator().rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
