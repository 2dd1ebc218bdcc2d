"""Writes a SavedModel of a checkpoint that any number of ranks has written, for one process to serve."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from sparse_operation_kit.core.communicator import alone, communicator

_NO_TRAINING = "sok_no_training"


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
    """As `CollectiveStrategy.export_saved_model`."""
    if signature_def_fn is None or checkpoint_dir is None:
        raise ValueError("export_saved_model needs a checkpoint_dir and a signature_def_fn")
    prefix = _prefix(checkpoint_dir)
    if communicator().rank != 0:
        return None
    folder = _new_folder(savedmodel_dir)
    with alone(), tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        signatures = signature_def_fn()
        if not isinstance(signatures, dict):
            signatures = {tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signatures}
        tf.constant(False, name=_NO_TRAINING)
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
        builder.save()
    _finish(folder, as_text)
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
    while os.path.exists(folder := os.path.join(base, str(stamp))):
        stamp += 1
    return folder


def _finish(folder: str, as_text: bool) -> None:
    """Has the model's lookups insert nothing, and writes it as it was asked for."""
    binary = os.path.join(folder, "saved_model.pb")
    model = saved_model_pb2.SavedModel()
    with open(binary, "rb") as file:
        model.ParseFromString(file.read())
    for meta_graph in model.meta_graphs:
        _read_only(meta_graph.graph_def)
        _own_its_tables(meta_graph.graph_def)
    if as_text:
        os.remove(binary)
        with open(os.path.join(folder, "saved_model.pbtxt"), "w", encoding="utf-8") as file:
            file.write(text_format.MessageToString(model))
    else:
        with open(binary, "wb") as file:
            file.write(model.SerializeToString())


def _own_its_tables(graph_def: graph_pb2.GraphDef) -> None:
    """Gives the tables names of their own: a process may load several models with tables of one name."""
    identity = f"@{secrets.token_hex(8)}".encode()
    for node in graph_def.node:
        if node.op == "SokTable":
            node.attr["shared_name"].s += identity


def _read_only(graph_def: graph_pb2.GraphDef) -> None:
    functions: list[Any] = [function.node_def for function in graph_def.library.function]
    if any(node.op == "SokGroupLookup" for nodes in functions for node in nodes):
        raise ValueError("export_saved_model: embedding variables cannot be looked up inside functions")
    for node in graph_def.node:
        if node.op == "SokGroupLookup":
            # Its last input says whether keys that are not there get rows.
            last = max(i for i, name in enumerate(node.input) if not name.startswith("^"))
            node.input[last] = _NO_TRAINING
