"""Embedding variables in MetaGraphs: an import makes them variables again, from the ops of their tables.

TensorFlow's own collections of variables cannot hold them: it would make each a `ResourceVariable`, which
reads a tensor. So a MetaGraph has them in a collection of the library's own, with the collections that each
was in, and its place there.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import re
from collections.abc import Callable, Collection
from typing import Any

import tensorflow as tf
from google.protobuf import wrappers_pb2

from sparse_operation_kit import native
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.dialect import dialect
from sparse_operation_kit.compat.internals import op_definition, ops, set_handle_data
from sparse_operation_kit.graphs import graph_keys, graph_ops
from sparse_operation_kit.graphs.graph_ops import inputs_of, outputs_of
from sparse_operation_kit.ranks import exchange_names, initialize
from sparse_operation_kit.ranks.communicator import communicator
from sparse_operation_kit.tables import row_policies
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.get_embedding_variable import InParts
from sparse_operation_kit.tables.initializers import constant_value
from sparse_operation_kit.tables.table_device import Servers, place_table

_META_GRAPH = "tensorflow.python.framework.meta_graph"

_log = logging.getLogger(__name__)

# Attributes of the op that makes a table: an input has the first, and a call the second.
_NOT_COPIED = ("num_initial_rows", "keep_existing", "for_restore")
# The control input of an op that runs `sok.Init`.
_INIT = re.compile(r"\^(.*/)?SokInit(_\d+)?")
# The classes whose objects an import can make, by name.
_KINDS = {kind.__name__: kind for kind in (EmbeddingVariable, InParts)}


def to_proto(variable: EmbeddingVariable, export_scope: str | None = None) -> wrappers_pb2.StringValue | None:
    """Returns what a MetaGraph says of a variable; None if the variable is not in the name scope."""
    if export_scope and not variable.handle.name.startswith(export_scope):
        return None
    description = {
        "kind": type(variable).__name__ + (" on parameter servers" if variable.servers.devices else ""),
        "variable": ops.strip_name_scope(variable.handle.op.name, export_scope),
        "initializer": ops.strip_name_scope(variable.initializer.name, export_scope),
        "is_initialized": ops.strip_name_scope(variable._is_initialized_op.op.name, export_scope),
        "rank": [communicator().rank, communicator().size],
        "shape": variable.shape.as_list(),
        "trainable": variable.trainable,
        "trained_by": variable.trained_by,
        "collections": _places(variable),
    }
    return wrappers_pb2.StringValue(value=json.dumps(description, sort_keys=True))


def from_proto(proto: wrappers_pb2.StringValue, import_scope: str | None = None) -> Any:
    """Returns the variable of a table in the default graph, and adds it to the collections that it was in.

    Only the table's name is returned in two cases. TensorFlow 2 loads a SavedModel in the graph of a
    function, where it replaces the variables by its own. And a graph that one process exported, such as a
    SavedModel that a rank serves, runs on several ranks as it is, but ops that were added to it would be
    those of ranks.

    Raises:
      ValueError: The MetaGraph was exported by another rank, or another number of ranks; the variable is of
        a class of `sok.experiment`; or the ops of the table are not in the graph.
    """
    description = json.loads(proto.value)
    name = ops.prepend_name_scope(description["variable"], import_scope)
    graph = tf.compat.v1.get_default_graph()
    if getattr(graph, "building_function", False):
        return name
    if description["rank"] == [0, 1] and communicator().size > 1:
        _log.warning(
            "Embedding variable '%s' is in no collection of variables: one process exported its MetaGraph, "
            "and on several ranks only the ops in it can use the table",
            name,
        )
        return name
    _check(name, description)
    table, initializer_op, check = (
        _op(graph, name, ops.prepend_name_scope(description[part], import_scope))
        for part in ("variable", "initializer", "is_initialized")
    )
    handle, is_initialized = outputs_of(table)["handle"], outputs_of(check)["is_initialized"]
    for known in graph_keys.embedding_variables(graph):
        if known.handle is handle:
            return known  # The MetaGraph was imported into the graph that it was exported from.
    exchange_names.adopt(graph, import_scope)
    variable = _variable(name, handle, initializer_op, is_initialized, description)
    variable.trained_by = description.get("trained_by", "")
    for key, place in description["collections"].items():
        graph.get_collection_ref(key).insert(place, variable)
    return variable


def _places(variable: EmbeddingVariable) -> dict[str, int]:
    """The collections of variables that have the variable, and its place in each."""
    keys = [*ops.GraphKeys._VARIABLE_COLLECTIONS, *dialect().collections_of_tables]
    found = {}
    for key in keys:
        members = variable.graph.get_collection(key)
        places = [place for place, member in enumerate(members) if member is variable]
        if places:
            found[key] = places[0]
    return found


def _check(name: str, description: dict[str, Any]) -> None:
    who = f"Embedding variable '{name}' cannot be imported"
    kind = description["kind"]
    if kind not in _KINDS:
        raise ValueError(
            f"{who}: it is a {kind}, whose Python object a MetaGraph does not hold. Build the graph by the "
            "program that made it"
        )
    rank, ranks = description["rank"]
    known = communicator()
    if (rank, ranks) != (known.rank, known.size):
        raise ValueError(
            f"{who}: rank {rank} of {ranks} exported the MetaGraph, and its ops are those of that rank. This "
            f"is rank {known.rank} of {known.size}: build the graph by the program that made it"
        )


def _op(graph: tf.Graph, name: str, op: str) -> tf.Operation:
    try:
        return graph.get_operation_by_name(op)
    except KeyError:
        raise ValueError(
            f"Embedding variable '{name}' cannot be imported: the graph has no op '{op}'"
        ) from None


def _variable(
    name: str,
    handle: tf.Tensor,
    initializer_op: tf.Operation,
    is_initialized: tf.Tensor,
    description: dict[str, Any],
) -> EmbeddingVariable:
    attributes = {
        attribute.name: _text(initializer_op.get_attr(attribute.name))
        for attribute in op_definition(initializer_op.type).attr
        if attribute.name not in _NOT_COPIED
    }
    variable = EmbeddingVariable.__new__(_KINDS[description["kind"]])
    variable.m_var_name = name
    variable.dim = attributes["dim"]
    variable.capacity = attributes["capacity"] or None
    variable.key_dtype = tf.as_dtype(attributes["key_dtype"])
    variable.row_dtype = tf.as_dtype(attributes["row_dtype"])
    variable.use_hashtable = attributes["use_hashtable"]
    variable.row_arithmetic = attributes["initializer_rows"] > 0
    evicts_by_step = attributes["eviction"] == "global_step"
    variable._eviction = row_policies.GlobalStepEvict(attributes["steps_to_live"]) if evicts_by_step else None
    variable._keeps_frequency = attributes["admission"] != "none" or attributes["on_full"] == "evict_lfu"
    is_filtered = attributes["admission"] != "none" and attributes["filter_freq"] > 0
    variable.constant_initial_value = constant_value(
        attributes["initializer"],
        attributes["initializer_args"],
        attributes["default_value"] if is_filtered else None,
        variable.row_dtype,
    )
    given = inputs_of(initializer_op)["initial_rows"]
    variable._given_rows = (lambda: given[0]) if given else None
    variable._make_table = functools.partial(native.ops.sok_initialize_table, **attributes)
    variable.servers, variable._parts = Servers(), []
    variable._initializer_inputs = tuple(initializer_op.control_inputs)
    initialize.adopt(initializer_op)
    _own_table(handle.op, name)
    shape = tf.TensorShape(description["shape"])
    set_handle_data(handle, shape, tf.float32)
    variable._become_variable(description["trainable"], shape, handle, initializer_op, is_initialized)
    return variable


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _own_table(handle: tf.Operation, name: str) -> None:
    """Gives a table that is imported under a scope rows of its own, as ordinary variables have.

    Otherwise it would share them with the table of that name in the session. A table whose name differs from
    its op's because it was exported so (`saved_model_sok.py`) keeps it.
    """
    place_table(handle, name)
    if name.endswith(f"/{handle.get_attr('shared_name').decode()}"):
        handle._set_attr("shared_name", tf.compat.v1.AttrValue(s=name.encode()))


@replacements.wraps(f"{_META_GRAPH}.create_meta_graph_def")
def _with_tables_of_collections(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Wraps what makes a MetaGraph: a table is in those collections of a `collection_list` that it was in."""
    arguments = inspect.signature(original).bind(*args, **kwargs).arguments
    wanted = arguments.get("collection_list")
    graph = arguments.get("graph") or tf.compat.v1.get_default_graph()
    if not graph_keys.embedding_variables(graph):
        return original(*args, **kwargs)
    keys = list(wanted or ())
    is_part = wanted is not None and graph_keys.TABLES not in keys
    if is_part:
        arguments["collection_list"] = [*keys, graph_keys.TABLES]
    meta_graph = original(**arguments)
    definitions = meta_graph.collection_def
    if is_part:
        _keep_collections(definitions, keys)
    # Collections of tables alone: TensorFlow would report an error when it imports nothing.
    for key in [key for key, one in definitions.items() if one.WhichOneof("kind") is None]:
        del definitions[key]
    return meta_graph


def _keep_collections(definitions: Any, wanted: Collection[str]) -> None:
    """Changes a MetaGraph's collections so that an import adds tables to the `wanted` ones only."""
    members = definitions[graph_keys.TABLES].bytes_list.value
    kept = []
    for member in members:
        proto = wrappers_pb2.StringValue.FromString(member)
        description = json.loads(proto.value)
        places = {key: place for key, place in description["collections"].items() if key in wanted}
        if places:
            proto.value = json.dumps({**description, "collections": places}, sort_keys=True)
            kept.append(proto.SerializeToString())
    if kept:
        members[:] = kept
    else:
        del definitions[graph_keys.TABLES]


@replacements.wraps(f"{_META_GRAPH}._node_def")
def _of_scope(
    original: Callable, from_node_def: Any, export_scope: str | None, *args: Any, **kwargs: Any
) -> Any:
    """Wraps what exports a node of a scope: a table leaves an Init outside and the scope's name behind."""
    if export_scope and from_node_def.op in (graph_ops.TABLE, graph_ops.INITIALIZE_TABLE):
        given, from_node_def = from_node_def, type(from_node_def)()
        from_node_def.CopyFrom(given)
        from_node_def.input[:] = [
            one for one in given.input if not _INIT.fullmatch(one) or one[1:].startswith(export_scope)
        ]
        if "shared_name" in given.attr:
            name = ops.strip_name_scope(given.attr["shared_name"].s.decode(), export_scope)
            from_node_def.attr["shared_name"].s = name.encode()
    return original(from_node_def, export_scope, *args, **kwargs)


ops.register_proto_function(graph_keys.TABLES, wrappers_pb2.StringValue, to_proto, from_proto)
