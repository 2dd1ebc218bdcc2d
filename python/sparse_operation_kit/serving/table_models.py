"""Exports tables as a SavedModel with TensorFlow ops only, for TensorFlow and TensorFlow Serving."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.serving.stock_tables import StockOptions, StockTable, session_on_host, write_model


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
        signatures: dict[str, Any] = {}
        made = [StockTable(table, chosen) for table in tables]
        chosen.check_names(made)
        for table, stock in zip(tables, made):
            ids = tf.compat.v1.placeholder(tf.int64, [None], name=f"ids_of_{len(signatures)}")
            signatures[signature_name(table, signatures)] = signature(ids, stock.look_up(ids))
        write_model(session, folder, [tf.saved_model.SERVING], with_default_signature(signatures), made)


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
