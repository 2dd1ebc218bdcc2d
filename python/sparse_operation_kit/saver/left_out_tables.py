"""Warns of tables that a checkpoint has, and that a program does not restore from it.

A program that restores what a checkpoint has, and compares shapes as well as names, leaves every table out:
the entry of a table is a string, whose shape cannot be that of a variable with any number of rows.

A Saver for a part of the variables on purpose looks the same. So there is no warning of a table that was
restored in the session before, that another Saver is for, or that gets its rows in another way. The same
holds for `init_from_checkpoint`.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.checkpoint import reader
from sparse_operation_kit.checkpoint.errors import CheckpointError, printable
from sparse_operation_kit.graphs import graph_keys, graph_ops
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.saver import checkpoint_save
from sparse_operation_kit.saver.table_saveables import is_table, variable_of
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable

_log = logging.getLogger(__name__)

# Ops that give a table rows from elsewhere.
_FILLS = (graph_ops.TABLE_ASSIGN, graph_ops.RESTORE_STAGE)

# What each Saver restores, by its tensor for file names, by graph: names of tables, and of other saveables.
_restored: weakref.WeakKeyDictionary[tf.Graph, dict[str, set[str]]] = weakref.WeakKeyDictionary()
# The handles of the tables that were restored, or of which there was a warning, by session.
_settled: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def note_saver(filename: tf.Tensor, saveables: Sequence[Any]) -> None:
    """Records what a Saver restores, when it is built. A Saver with shards is noted once for each device."""
    names = {variable_of(one).m_var_name if is_table(one) else one.name for one in saveables}
    _restored.setdefault(filename.graph, {}).setdefault(filename.name, set()).update(names)


def warn(saver: tf.compat.v1.train.Saver, session: Any, save_path: Any) -> None:
    """After a restore: logs a warning of each table that the checkpoint has and the Saver has left out."""
    graph = getattr(session, "graph", None)
    tables = graph_keys.embedding_variables(graph) if graph is not None else []
    if not tables or communicator().rank != 0:
        return
    settled = _settled.setdefault(session, set())
    settled |= checkpoint_save.handles_of(saver, graph)
    left = {one.m_var_name: one for one in tables if one.handles[0].name not in settled}
    elsewhere = _of_other_savers(saver, graph)
    left = {name: one for name, one in left.items() if name not in elsewhere and not _is_filled(one)}
    if not left:
        return
    prefix = os.fsdecode(save_path)
    found = left.keys() & _tables_of(prefix)
    settled |= {left[name].handles[0].name for name in found}
    _warn(
        prefix,
        found,
        "the Saver that restored it leaves the variable out: the table keeps the rows that it had. Unless "
        "this is intended, choose a Saver's",
    )


def warn_of_map(prefix: str, names: Collection[str]) -> None:
    """After `init_from_checkpoint` of no table: the same for a program that chose variables by shape.

    There is a warning only if the call has all ordinary variables that the checkpoint has too, as a call for
    a part of them leaves the tables out on purpose.

    Args:
      prefix: the checkpoint.
      names: the names in the checkpoint that the call loads, or scopes.
    """
    tables = {one.m_var_name: one for one in graph_keys.embedding_variables(tf.compat.v1.get_default_graph())}
    if not tables or communicator().rank != 0:
        return
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    ordinary = {
        one.op.name
        for one in tf.compat.v1.trainable_variables()
        if one.op.name in shapes.keys() - tables.keys() and one.shape.is_compatible_with(shapes[one.op.name])
    }
    if not ordinary or not ordinary <= set(names):
        return
    _warn(
        prefix,
        [name for name in tables.keys() & _tables_of(prefix) if not _is_filled(tables[name])],
        "init_from_checkpoint is called for all other variables that it has: the table begins empty, unless "
        "a later call loads it. If this is not intended, choose",
    )


def _tables_of(prefix: str) -> set[str]:
    """Returns the names of a checkpoint's tables."""
    try:
        checkpoint = reader.open_saved(prefix)
    except CheckpointError:
        return set()
    return set(checkpoint.tables) if checkpoint else set()


def _warn(prefix: str, names: Collection[str], why: str) -> None:
    for name in sorted(names):
        message = (
            f"{prefix} has embedding variable '{name}', and {why} variables by name and not by shape: in a "
            "checkpoint, a table is a string of shape []"
        )
        _log.warning("%s", printable(message))


def _of_other_savers(saver: tf.compat.v1.train.Saver, graph: tf.Graph) -> set[str]:
    """The names of what is restored by Savers that have nothing in common with this one."""
    by_saver = dict(_restored.get(graph, {}))
    own = by_saver.pop(saver.saver_def.filename_tensor_name, set())
    return set().union(*(names for names in by_saver.values() if not names & own))


def _is_filled(table: EmbeddingVariable) -> bool:
    """Whether the program has ops that give the table rows of another source."""
    return not table.begins_empty or any(
        op.type in _FILLS for handle in table.handles for op in handle.consumers()
    )
