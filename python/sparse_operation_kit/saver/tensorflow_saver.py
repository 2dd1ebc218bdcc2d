"""Lets TensorFlow's Savers save and restore embedding variables.

The module wraps methods of TensorFlow's Saver and its builder. For a Saver without embedding variables the
wrappers call the originals with the same arguments, so it has the same ops as without this library.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.ranks.exchange_names import list_of
from sparse_operation_kit.saver import checkpoint_restore, checkpoint_save, left_out_tables, old_checkpoints
from sparse_operation_kit.saver.table_saveables import is_table, name_of, tables_of, with_given_names

_BUILDER = "tensorflow.python.training.saver.BaseSaverBuilder"
_SAVER = "tensorflow.python.training.saver.Saver"


@replacements.wraps(f"{_BUILDER}._build_internal")
def _build_internal(original, self, names_to_saveables, *args, **kwargs):
    return original(self, with_given_names(names_to_saveables), *args, **kwargs)


@replacements.wraps(f"{_BUILDER}._GroupByDevices")
def _group_by_devices(original, self, saveables):
    if not tables_of(saveables):
        return original(self, saveables)
    by_device: dict[str, list[Any]] = {}
    for saveable in saveables:
        devices = {tf.DeviceSpec.from_string(spec.device or "").to_string() for spec in saveable.specs}
        if len(devices) != 1:
            raise ValueError(f"All tensors of '{saveable.name}' must be on one device: {sorted(devices)}")
        by_device.setdefault(devices.pop(), []).append(saveable)
    return sorted(by_device.items())


@replacements.wraps(f"{_BUILDER}._AddSaveOps")
def _add_save_ops(original, self, filename_tensor, saveables):
    if not tables_of(saveables):
        return original(self, filename_tensor, saveables)

    def save_others(prefix: tf.Tensor, replacement: Callable[[Any], Any]) -> tf.Tensor | None:
        others = [replacement(saveable) for saveable in saveables if not is_table(saveable)]
        return original(self, prefix, others) if others else None

    return _save_with_tables(self, filename_tensor, saveables, save_others)


@replacements.wraps(f"{_BUILDER}._AddShardedSaveOps")
def _add_sharded_save_ops(original, self, filename_tensor, per_device):
    # `original` calls _AddSaveOps with other file names, and without tables.
    everything = [saveable for _, saveables in per_device for saveable in saveables]
    if not tables_of(everything):
        return original(self, filename_tensor, per_device)

    def save_others(prefix: tf.Tensor, replacement: Callable[[Any], Any]) -> tf.Tensor | None:
        others = [
            (device, [replacement(saveable) for saveable in saveables if not is_table(saveable)])
            for device, saveables in per_device
        ]
        others = [(device, saveables) for device, saveables in others if saveables]
        return original(self, prefix, others) if others else None

    return _save_with_tables(self, filename_tensor, everything, save_others)


def _save_with_tables(
    builder: Any, filename: tf.Tensor, saveables: Sequence[Any], save_others: Callable
) -> tf.Tensor:
    tables = tables_of(saveables)
    if builder._write_version != tf.compat.v1.train.SaverDef.V2:
        raise ValueError(
            f"A Saver of the embedding variables {list_of([name_of(table) for table in tables])} must have "
            f"write_version=SaverDef.V2, the default, not {builder._write_version}: the older format has no "
            "place for tables. A Saver with the default restores checkpoints of the older format too"
        )
    is_incremental = getattr(builder, "sok_incremental", False)
    # Those besides tables of which every rank has a part.
    shared = [saveable for saveable in saveables if hasattr(saveable, "of_all_ranks")]
    return checkpoint_save.add_ops(tables, filename, is_incremental, save_others, shared)


@replacements.wraps(f"{_BUILDER}._AddRestoreOps")
def _add_restore_ops(original, self, filename_tensor, saveables, *args, **kwargs):
    left_out_tables.note_saver(filename_tensor, saveables)
    if not tables_of(saveables):
        return original(self, filename_tensor, saveables, *args, **kwargs)
    return checkpoint_restore.add_ops(self, original, filename_tensor, saveables, *args, **kwargs)


@replacements.wraps(f"{_BUILDER}._AddShardedRestoreOps")
def _add_sharded_restore_ops(original, self, filename_tensor, per_device, restore_sequentially, reshape):
    everything = [saveable for _, saveables in per_device for saveable in saveables]
    if not tables_of(everything):
        return original(self, filename_tensor, per_device, restore_sequentially, reshape)
    # One call for all devices, so that nothing is assigned before all tables were checked.
    return self._AddRestoreOps(filename_tensor, everything, restore_sequentially, reshape)


replacements.wraps(f"{_SAVER}.save")(checkpoint_save.save)
replacements.wraps(f"{_SAVER}._MaybeDeleteOldCheckpoints")(old_checkpoints.remove)


@replacements.wraps(f"{_SAVER}.restore")
def _restore(original, self, sess, save_path):
    if not checkpoint_save.has_tables(self, getattr(sess, "graph", None)):
        result = original(self, sess, save_path)
    else:
        result = checkpoint_restore.restore(original, self, sess, save_path)
        checkpoint_save.note_use(sess.graph, os.fsdecode(save_path))
    left_out_tables.warn(self, sess, save_path)
    return result
