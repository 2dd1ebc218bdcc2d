"""Exports tables as a SavedModel with TensorFlow ops only, for TensorFlow and TensorFlow Serving."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.rows import count_rows, row_blocks

# An extra key after all others, whose row is that of ids without a row. If the table has this key too, the
# table's key comes first, and the search finds it first.
_LAST = np.int64(2**63 - 1)


def write_saved_model(tables: Sequence[Table], folder: Path, default: float | None) -> None:
    """Writes a SavedModel with one signature for each table: `ids` int64 [n] to `rows` float32 [n, dim].

    One variable has the sorted keys, another the rows in the same order; a lookup is a binary search and a
    gather. If there is only one table, its signature is also called `serving_default`. Memory: all tables,
    and the largest one twice.

    Args:
      tables: The tables, with their chains.
      folder: The folder to create; it must not exist.
      default: The value of every column for ids without a row. None: the default value of the table's
        admission filter, or 0 without a filter.
    """
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        variables: list[tf.Variable] = []
        signatures: dict[str, Any] = {}
        for number, table in enumerate(tables):
            keys, rows = _variables(session, table, number, _default_of(table, default))
            variables += [keys, rows]
            signatures[signature_name(table, signatures)] = _signature(keys, rows, number)
        _save(session, folder, signatures, tf.compat.v1.train.Saver(variables))


def _save(
    session: tf.compat.v1.Session, folder: Path, signatures: dict[str, Any], saver: tf.compat.v1.train.Saver
) -> None:
    """Writes a graph and its variables as a SavedModel."""
    builder = tf.compat.v1.saved_model.Builder(str(folder))
    builder.add_meta_graph_and_variables(
        session, [tf.saved_model.SERVING], signature_def_map=with_default_signature(signatures), saver=saver
    )
    builder.save()


def with_default_signature(signatures: dict[str, Any]) -> dict[str, Any]:
    """Returns the signatures; if there is only one, also under the name of the default signature."""
    if len(signatures) != 1:
        return signatures
    return {**signatures, tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: next(iter(signatures.values()))}


def signature_name(table: Table, taken: dict[str, Any]) -> str:
    """Returns a signature name for a table that is not in `taken`: letters, digits and underscores only."""
    base = re.sub(r"\W", "_", table.name, flags=re.ASCII)
    name, number = base, 1
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def signature(ids: tf.Tensor, rows: tf.Tensor) -> Any:
    """Returns the signature from `ids` to `rows`."""
    return tf.compat.v1.saved_model.predict_signature_def({"ids": ids}, {"rows": rows})


def _default_of(table: Table, default: float | None) -> float:
    if default is not None:
        return default
    return (table.last.table["admission"] or {}).get("default_value", 0.0)


def _variables(
    session: tf.compat.v1.Session, table: Table, number: int, default: float
) -> tuple[tf.Variable, tf.Variable]:
    """Creates and fills the variables of a table: keys in ascending order, and their rows."""
    count, dim = count_rows(table), table.dim
    unordered = np.concatenate([np.zeros([0], np.int64), *(block.keys for block in row_blocks(table, ()))])
    order = np.argsort(unordered)
    place = np.empty([count], np.int64)
    place[order] = np.arange(count)
    with tf.compat.v1.variable_scope(f"table_{number}"):
        keys = tf.compat.v1.get_variable(
            "keys", [count + 1], tf.int64, initializer=tf.constant_initializer(0), use_resource=True
        )
        rows = tf.compat.v1.get_variable(
            "rows", [count + 1, dim], initializer=tf.constant_initializer(0), use_resource=True
        )
    positions = tf.compat.v1.placeholder(tf.int64, [None])
    values = tf.compat.v1.placeholder(tf.float32, [None, dim])
    update = tf.compat.v1.scatter_update(rows, positions, values)
    session.run([keys.initializer, rows.initializer])
    keys.load(np.append(unordered[order], _LAST), session)
    del unordered, order
    begin = 0
    for block in row_blocks(table, ("values",)):
        end = begin + len(block.keys)
        session.run(update.op, {positions: place[begin:end], values: block.columns["values"]})
        begin = end
    session.run(update.op, {positions: [count], values: np.full([1, dim], default, np.float32)})
    return keys, rows


def _signature(keys: tf.Variable, rows: tf.Variable, number: int) -> Any:
    with tf.name_scope(f"lookup_{number}"):
        ids = tf.compat.v1.placeholder(tf.int64, [None], name="ids")
        ordered = keys.read_value()
        position = tf.searchsorted(ordered, ids, out_type=tf.int64)
        found = tf.equal(tf.gather(ordered, position), ids)
        last = tf.shape(ordered, out_type=tf.int64)[0] - 1
        # `tf.where` of 1.15 does not broadcast.
        row = tf.where(found, position, tf.fill(tf.shape(position), last))
        return signature(ids, tf.gather(rows, row, name="rows"))
