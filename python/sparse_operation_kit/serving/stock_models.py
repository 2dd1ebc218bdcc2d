"""Rewrites SavedModels with this library's ops into ones that need nothing but TensorFlow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.exporting import MODEL_FILE
from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.locate import open_checkpoint
from sparse_operation_kit.compat.internals import (
    RefVariable,
    meta_graph_pb2,
    resource_variable_ops,
    saved_model_pb2,
    variable_pb2,
)
from sparse_operation_kit.serving.stock_graph import StockGraph
from sparse_operation_kit.serving.stock_tables import (
    StockOptions,
    session_on_host,
    write_model,
)

_VARIABLES = Path("variables", "variables")
# Folders of files that the graph reads, and of those that only servers read.
_ASSETS = ("assets", "assets.extra")
_ASSETS_COLLECTION = "saved_model_assets"
# Where TensorFlow's versions have a model's init op: among the signatures, or in one of these collections.
_INIT_OP = "__saved_model_init_op"
_INIT_OP_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")


def rewrite(folder: Path, to: Path, **options: Any) -> None:
    """Writes a SavedModel whose lookups are stock ops; the rest is as in the given one, without training.

    Memory: the variables and all tables, and the keys of the largest one twice.

    Args:
      folder: A SavedModel of `tf.compat.v1.saved_model` or an Estimator, with a graph for serving.
      to: The folder to create; it must not exist.
      **options: The fields of `StockOptions`.

    Raises:
      CheckpointError: The model is none of these, or damaged, or what ids without a row read as must be
        given.
      ValueError: See `StockGraph.add`.
    """
    given = _graph_for_serving(folder)
    write_stock_model(given, folder / _VARIABLES, to, StockOptions(**options), assets=_assets(given))
    for name in _ASSETS:
        if (folder / name).is_dir():
            shutil.copytree(folder / name, to / name)


def write_stock_model(
    given: Any,
    prefix: Path,
    to: Path,
    options: StockOptions,
    asset_paths: Sequence[str] = (),
    assets: Sequence[Any] = (),
) -> None:
    """Writes a graph and a checkpoint of its variables as a SavedModel whose lookups are stock ops.

    Args:
      given: The MetaGraphDef, with signatures.
      prefix: The checkpoint's prefix.
      to: The folder to create; it must not exist.
      options: How tables become stock ops.
      asset_paths: Names of tensors with the paths of files that the model reads, and that become part of it.
      assets: `AssetFileDef`s of files that the caller copies into the model.

    Raises:
      CheckpointError: A table is damaged, or what ids without a row read as must be given.
      ValueError: `absent` names another table, or see `StockGraph.add`.
    """
    source = tf.Graph()
    with source.as_default():
        tf.import_graph_def(given.graph_def, name="")

    def open_table(name: str) -> Table:
        table = open_checkpoint(prefix).select([name])[0].open()
        table.require_current()
        return table

    part = StockGraph(source, open_table, options)
    signatures = {name: one for name, one in given.signature_def.items() if name != _INIT_OP}
    part.add(name for one in signatures.values() for name in _tensors_of(one))
    init_op = _init_op(given)
    part.add(init_op)
    definitions = _variables(part, given)
    options.check_names(part.tables)
    with tf.Graph().as_default() as graph, session_on_host() as session:
        tf.import_graph_def(part.definition(), name="")
        variables = _made(definitions)
        if variables:
            tf.compat.v1.train.Saver(variables).restore(session, str(prefix))
        paths = [graph.get_tensor_by_name(name) for name in asset_paths if part.has(name)]
        prepare = [graph.get_operation_by_name(name) for name in (*init_op, *part.initializers)]
        assets = [one for one in assets if part.has(one.tensor_info.name)]
        tags = given.meta_info_def.tags
        write_model(session, to, tags, signatures, part.tables, variables, prepare, paths, assets)


def _graph_for_serving(folder: Path) -> Any:
    model = saved_model_pb2.SavedModel()
    try:
        model.ParseFromString((folder / MODEL_FILE).read_bytes())
    except OSError as error:
        raise CheckpointError(folder, f"cannot be read as a SavedModel: {error}") from None
    except Exception:  # protobuf's DecodeError, whose module differs between its versions
        raise CheckpointError(folder / MODEL_FILE, "is damaged, or no SavedModel") from None
    found = [one for one in model.meta_graphs if tf.saved_model.SERVING in one.meta_info_def.tags]
    if len(found) != 1:
        tags = [list(one.meta_info_def.tags) for one in model.meta_graphs]
        raise CheckpointError(
            folder,
            f"has {len(found)} graphs with the tag '{tf.saved_model.SERVING}', not one: its tags are {tags}",
        )
    if found[0].HasField("object_graph_def"):
        raise CheckpointError(
            folder,
            "was written by tf.saved_model.save: write it with tf.compat.v1.saved_model or an Estimator",
        )
    return found[0]


def _tensors_of(signature: Any) -> Iterator[str]:
    """Yields the names of a signature's tensors."""
    for info in (*signature.inputs.values(), *signature.outputs.values()):
        yield from _names(info)


def _names(info: Any) -> Iterator[str]:
    kind = info.WhichOneof("encoding")
    if kind == "name":
        yield info.name
    elif kind == "coo_sparse":
        sparse = info.coo_sparse
        yield from (sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name)
    elif kind == "composite_tensor":
        for component in info.composite_tensor.components:
            yield from _names(component)


def _init_op(given: Any) -> list[str]:
    """Returns the name of a model's init op in a list; an empty one without an init op."""
    if _INIT_OP in given.signature_def:
        infos = dict(given.signature_def[_INIT_OP].outputs)
        return [infos[_INIT_OP].name]
    for key in _INIT_OP_COLLECTIONS:
        if key in given.collection_def:
            return list(given.collection_def[key].node_list.value)
    return []


def _assets(given: Any) -> list[Any]:
    """Returns the `AssetFileDef`s of a model, which are in one of two places."""
    assets = list(given.asset_file_def)
    if not assets and _ASSETS_COLLECTION in given.collection_def:
        for packed in given.collection_def[_ASSETS_COLLECTION].any_list.value:
            assets.append(meta_graph_pb2.AssetFileDef())
            packed.Unpack(assets[-1])
    return assets


def _variables(part: StockGraph, given: Any) -> dict[str, list[Any]]:
    """Adds what the variables need that a part of the graph reads; returns their protos by collection."""
    keys = tf.compat.v1.GraphKeys
    found = {}
    for key in (keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES, keys.TRAINABLE_VARIABLES):
        texts = given.collection_def[key].bytes_list.value if key in given.collection_def else ()
        definitions = [variable_pb2.VariableDef.FromString(text) for text in texts]
        found[key] = [one for one in definitions if part.has(one.variable_name)]
        for one in found[key]:
            # Values come from the checkpoint. What makes the first ones may need all ranks.
            one.ClearField("initial_value_name")
            one.initializer_name = one.variable_name.split(":")[0]
            part.add([one.variable_name, one.snapshot_name])
    return found


def _made(definitions: Mapping[str, Sequence[Any]]) -> list[tf.Variable]:
    """Makes variables of their protos in the default graph and adds them to the collections; returns them."""
    made: dict[str, tf.Variable] = {}
    for key, protos in definitions.items():
        for one in protos:
            if one.variable_name not in made:
                kind = resource_variable_ops.ResourceVariable if one.is_resource else RefVariable
                made[one.variable_name] = kind.from_proto(one)
            tf.compat.v1.add_to_collection(key, made[one.variable_name])
    return list(made.values())
