"""Restores tables from checkpoints, on all ranks together.

read TensorFlow's other variables -> SokCheckCheckpoint reads all tables; ranks agree that all are sound
-> SokLoadCheckpoint: they take the places of the old ones; ranks agree that all have -> the other variables
are assigned

Until the tables change places, the old and the new ones are in memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.checkpoint import own_files
from sparse_operation_kit.checkpoint.other_systems import powers_of_async
from sparse_operation_kit.graphs import graph_keys, graph_ops
from sparse_operation_kit.lookup.group import is_reading_only
from sparse_operation_kit.ranks.agreement import Stages
from sparse_operation_kit.ranks.exchange_names import list_of
from sparse_operation_kit.saver.table_saveables import Feeding, is_table, name_of, tables_of, variable_of
from sparse_operation_kit.tables import table_parts
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable

# The name of a power that AdamAsync has for a table.
_POWER_OF_ASYNC = re.compile("AdamAsync/(.+)/beta[12]_power")


def add_load_ops(
    tables: Sequence[EmbeddingVariable],
    prefix: tf.Tensor | str,
    names: Sequence[str],
    *,
    optimizers: bool | tf.Tensor,
    counts: bool | tf.Tensor = True,
    trained_by: Sequence[str | tf.Tensor],
    after: Sequence[tf.Tensor] = (),
) -> tf.Tensor:
    """Adds the ops that restore tables from a checkpoint.

    Args:
      tables: The tables, in the same order on all ranks.
      prefix: The checkpoint's prefix.
      names: The tables' names in the checkpoint.
      optimizers: Whether to restore the optimizers' state and slots.
      counts: The same for the tables' counts.
      trained_by: `EmbeddingVariable.trained_by` of each table, for slots of other systems' checkpoints.
      after: Tensors that must have been read before.

    Returns:
      A tensor that raises unless all tables were restored on all ranks, and before anything changes unless
      all of them can be.
    """
    processes = table_parts.by_process(tables, "restored by one Saver")
    what = f"Restoring a checkpoint of {list_of([table.m_var_name for table in tables])}"
    made = [table.make_if_missing(for_restore=True) for table in tables]
    checks, loads = Stages(what), Stages(what)
    with tf.control_dependencies([*made, *after]):
        checked = table_parts.on_each(
            processes,
            tables[0],
            lambda handles: native.ops.sok_check_checkpoint(
                handles, prefix, optimizers, counts, list(trained_by), names=list(names)
            ),
        )
    checks.add([(one.code, one.message) for one in checked], "check (every rank restores)")
    with tf.control_dependencies([checks.raise_failures()]):
        states = iter([one.checked for one in checked])
        loaded = table_parts.on_each(
            processes, tables[0], lambda handles: native.ops.sok_load_checkpoint(handles, next(states))
        )
        loads.add([(one.code, one.message) for one in loaded], "load")
        return loads.raise_failures()


class _AlreadyRead:
    """A stand-in for a Saver builder that returns tensors which have been read already."""

    def __init__(self, tensors: Sequence[tf.Tensor]) -> None:
        self._tensors = tensors

    def bulk_restore(self, *args: Any, **kwargs: Any) -> Sequence[tf.Tensor]:
        del args, kwargs
        return self._tensors


def _read_power(prefix: tf.Tensor, power: Any) -> tf.Tensor:
    """Reads a power of AdamAsync under a name that can be fed; in checkpoints of DeepRec its shape is [1]."""
    name = tf.compat.v1.placeholder_with_default([power.name], [1], name="name_of_power")
    (spec,) = power.specs
    (found,) = tf.raw_ops.RestoreV2(
        prefix=prefix, tensor_names=name, shape_and_slices=[""], dtypes=[spec.dtype]
    )
    return tf.reshape(found, [])


def add_ops(
    builder: Any,
    original: Callable,
    prefix: tf.Tensor,
    saveables: Sequence[Any],
    restore_sequentially: bool,
    reshape: bool,
    preferred_shard: int = -1,
    name: str = "restore_all",
) -> tf.Operation:
    """Replaces `BaseSaverBuilder._AddRestoreOps`, which is `original`, for saveables that include tables."""
    tables = sorted(tables_of(saveables), key=lambda table: variable_of(table).m_var_name)
    variables = [saveable for saveable in saveables if not is_table(saveable)]
    powers = [saveable for saveable in variables if _POWER_OF_ASYNC.fullmatch(saveable.name)]
    others = [saveable for saveable in variables if saveable not in powers]
    tensors = list(
        builder.bulk_restore(prefix, others, preferred_shard, restore_sequentially) if others else []
    )
    tensors += [_read_power(prefix, power) for power in powers]
    others += powers
    loaded = add_load_ops(
        [variable_of(table) for table in tables],
        prefix,
        [name_of(table) for table in tables],
        optimizers=tf.compat.v1.placeholder_with_default(True, [], name="restores_optimizers"),
        counts=tf.compat.v1.placeholder_with_default(True, [], name="restores_counts"),
        trained_by=[tf.compat.v1.placeholder_with_default("", [], name="trained_by") for _ in tables],
        after=tensors,
    )
    # The other variables change last: only the load of a table can still fail.
    with tf.control_dependencies([loaded]):
        tensors = [tf.identity(tensor) for tensor in tensors]
    assigned = original(
        _AlreadyRead(tensors),
        prefix,
        others,
        restore_sequentially,
        reshape,
        preferred_shard,
        f"{name}_others",
    )
    return tf.group(assigned, loaded, name=name)


def restore(original: Callable, saver: tf.compat.v1.train.Saver, sess: Any, save_path: Any) -> None:
    """Replaces `Saver.restore`, which is `original`: a damaged checkpoint is a DataLossError that names it.

    TensorFlow raises OutOfRangeError for a damaged string, which a monitored session takes for the end of the
    input.

    In a graph that trains no table, tables are restored without their optimizers: what evaluates or serves
    has no memory for slots, and saves none. In the context `reading_only`, in which no row is added, they are
    also restored without counts and ids that wait for admission.
    """
    restore_op = saver.saver_def.restore_op_name
    feed: dict[tf.Tensor, Any] = {}
    left_out = []
    if not graph_ops.trains_tables(sess.graph):
        left_out += graph_ops.inputs_of_restore(sess.graph, restore_op, "optimizers")
    if left_out:
        for variable in graph_keys.embedding_variables(sess.graph):
            variable.restored_without_optimizer = True
        if is_reading_only():
            left_out += graph_ops.inputs_of_restore(sess.graph, restore_op, "counts")
        feed.update({tensor: False for tensor in left_out})
    else:
        tables = {
            handle.name: variable
            for variable in graph_keys.embedding_variables(sess.graph)
            for handle in variable.handles
        }
        for handle, told in graph_ops.optimizers_of_restore(sess.graph, restore_op):
            feed[told] = getattr(tables.get(handle.name), "trained_by", "")
    feed.update(_names_of_powers(sess.graph, restore_op, os.fspath(save_path)))
    if feed:
        sess = Feeding(sess, feed)
    try:
        _restore(original, saver, sess, save_path)
    except (tf.errors.OutOfRangeError, tf.errors.DataLossError) as error:
        if isinstance(error, tf.errors.DataLossError) and str(save_path) in error.message:
            raise
        raise tf.errors.DataLossError(
            error.node_def, error.op, f"The checkpoint {save_path} is damaged: {error.message}"
        ) from error


def _names_of_powers(graph: tf.Graph, restore_op: str, prefix: str) -> dict[tf.Tensor, Any]:
    """Returns what to feed so that AdamAsync's powers are read from a checkpoint of DeepRec, by its names."""
    feed = {}
    for op in graph_ops.ops_needed_by([graph.get_operation_by_name(restore_op)]):
        names = graph_ops.inputs_of(op)["tensor_names"] if op.type == "RestoreV2" else None
        if names is None or names.op.type != "PlaceholderWithDefault":
            continue
        (name,) = (one.decode() for one in tf.get_static_value(graph_ops.inputs_of(names.op)["input"]))
        power = _POWER_OF_ASYNC.fullmatch(name)
        found = powers_of_async(prefix, power[1]) if power else {}
        if name in found:
            feed[names] = [found[name][0]]
    return feed


def _restore(original: Callable, saver: tf.compat.v1.train.Saver, sess: Any, save_path: Any) -> None:
    try:
        original(saver, sess, save_path)
    except ValueError:
        # TensorFlow takes an index that could not be asked about for a missing one.
        if own_files.facts(f"{save_path}.index") is None:
            raise
        original(saver, sess, save_path)
