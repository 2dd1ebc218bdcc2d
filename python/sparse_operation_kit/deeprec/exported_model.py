"""Exports a checkpoint, written by any number of ranks, as a SavedModel that one process can serve."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable

import tensorflow as tf

from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.lookup.group import reading_only
from sparse_operation_kit.ranks.communicator import alone, communicator


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
