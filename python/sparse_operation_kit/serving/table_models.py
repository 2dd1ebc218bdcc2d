"""Exports tables as a SavedModel: with TensorFlow ops only, or with this library's op for lookups."""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.checkpoint.compaction import write_anew
from sparse_operation_kit.checkpoint.exporting import MODEL_FILE
from sparse_operation_kit.checkpoint.format import INITIAL_ROWS, Table
from sparse_operation_kit.compat.internals import saved_model_pb2
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup.group import DenseLookup, lookup_group
from sparse_operation_kit.serving.stock_tables import StockOptions, StockTable, session_on_host, write_model
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.row_policies import CounterFilter, InitializerOption


def write_saved_model(tables: Sequence[Table], folder: Path, **options: Any) -> None:
    """Writes a SavedModel with one signature for each table: `ids` int64 [n] to `rows` float32 [n, dim].

    If there is only one table, its signature is also called `serving_default`. Memory: all tables.

    Args:
      tables: The tables, with their chains.
      folder: The folder to create; it must not exist.
      **options: The fields of `StockOptions`.
    """
    chosen = StockOptions(**options)
    with tf.Graph().as_default(), session_on_host() as session:
        made = [StockTable(table, chosen) for table in tables]
        chosen.check_names(made)
        signatures = _signatures(tables, [stock.look_up for stock in made])
        write_model(session, folder, [tf.saved_model.SERVING], signatures, made)


def _signatures(
    tables: Sequence[Table], look_ups: Sequence[Callable[[tf.Tensor], tf.Tensor]]
) -> dict[str, Any]:
    """Returns a signature for each table by name; that of an only one also under the default name."""
    signatures: dict[str, Any] = {}
    for table, look_up in zip(tables, look_ups):
        ids = tf.compat.v1.placeholder(tf.int64, [None], name=f"ids_of_{len(signatures)}")
        one = tf.compat.v1.saved_model.predict_signature_def({"ids": ids}, {"rows": look_up(ids)})
        signatures[_signature_name(table, signatures)] = one
    is_only = len(signatures) == 1
    return {**signatures, tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: one} if is_only else signatures


def _signature_name(table: Table, taken: dict[str, Any]) -> str:
    """Returns a signature name for a table that is not in `taken`: letters, digits and underscores only."""
    base = re.sub(r"\W", "_", table.name, flags=re.ASCII)
    name, number = base, 1
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def write_saved_model_sok(tables: Sequence[Table], folder: Path) -> None:
    """Writes a SavedModel with one signature for each table: `ids` int64 [n] to `rows` float32 [n, dim].

    A process that loads the model must import this library; it needs neither Horovod nor `sok.Init`. An id
    without a row reads as its initial row, or as the default value of the table's admission filter.

    The model's variables are a checkpoint of the tables without their optimizers. Exporting needs the memory
    of one shard of a table, and loading that of the tables once.

    Args:
      tables: The tables, with their chains.
      folder: The folder to create; it must not exist.
    """
    with tf.Graph().as_default() as graph:
        with tf.control_dependencies([_init()]):
            variables = [_variable(table) for table in tables]
        signatures = _signatures(tables, [functools.partial(_look_up, variable) for variable in variables])
        saver = tf.compat.v1.train.Saver(variables)
        own_its_tables(graph)
        model = _saved_model(graph, saver, signatures)
    folder.mkdir()
    _write_variables(tables, folder / "variables" / "variables")
    (folder / MODEL_FILE).write_bytes(model.SerializeToString())


def _look_up(variable: EmbeddingVariable, ids: tf.Tensor) -> tf.Tensor:
    return lookup_group([DenseLookup(variable, ids)], training=False)[0]


def _init() -> tf.Tensor:
    """Returns the op of sok.Init for a single process. Its arguments do not affect lookups."""
    arguments = tf.constant([1, 0, tf.float32.as_datatype_enum], tf.int64)
    return native.ops.sok_init(arguments, rank=0, ranks=1)


def _variable(table: Table) -> EmbeddingVariable:
    description = table.last.table
    admission, initializer = description["admission"], description["initializer"]
    capacity = None if description["hashed"] else table.last.static_keys
    return EmbeddingVariable(
        table.name,
        dim=table.dim,
        dtype=tf.as_dtype(table.last.row_dtype),
        capacity=capacity,
        initializer=InitializerOption(
            _initializer(table),
            default_value_dim=initializer.get("rows", 0),
            default_value_no_permission=admission["default_value"] if admission else 0.0,
        ),
        use_hashtable=description["hashed"],
        admission=CounterFilter(max(admission["filter_freq"], 0)) if admission else None,
        row_arithmetic="rows" in initializer and initializer["kind"] != "given",
    )


def _initializer(table: Table) -> Any:
    """Returns the initializer of new rows; its seed is restored with the rows."""
    v1 = tf.compat.v1
    description = table.last.table["initializer"]
    if description["kind"] == "given":
        return table.first.shards[0].array(INITIAL_ROWS)
    first, second = description["a"], description["b"]
    return {
        "constant": lambda: first,
        "uniform": lambda: v1.random_uniform_initializer(first, second),
        "normal": lambda: v1.random_normal_initializer(first, second),
        "truncated_normal": lambda: v1.truncated_normal_initializer(first, second),
    }[description["kind"]]()


def own_its_tables(graph: tf.Graph) -> None:
    """Gives tables unique names, so that a process can load several models with equally named tables."""
    identity = f"@{secrets.token_hex(8)}".encode()
    for table in graph_ops.tables_of(graph):
        name = table.get_attr("shared_name") + identity
        table._set_attr("shared_name", tf.compat.v1.AttrValue(s=name))


def _saved_model(graph: tf.Graph, saver: tf.compat.v1.train.Saver, signatures: dict[str, Any]) -> Any:
    model = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta_graph = model.meta_graphs.add()
    meta_graph.CopyFrom(
        tf.compat.v1.train.export_meta_graph(graph=graph, saver_def=saver.as_saver_def(), clear_devices=True)
    )
    meta_graph.meta_info_def.tags.append(tf.saved_model.SERVING)
    for name, definition in signatures.items():
        meta_graph.signature_def[name].CopyFrom(definition)
    return model


def _write_variables(tables: Sequence[Table], prefix: Path) -> None:
    prefix.parent.mkdir()
    write_anew(Path(tables[0].last.prefix), prefix, [table.name for table in tables], for_serving=True)
