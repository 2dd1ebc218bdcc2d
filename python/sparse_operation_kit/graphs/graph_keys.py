"""Names of the library's graph collections."""

from __future__ import annotations

from typing import Any

from google.protobuf import wrappers_pb2

from sparse_operation_kit.compat.internals import ops


class GraphKeys:
    """Names of graph collections.

    Attributes:
      SparseOperationKitEmbeddingLayers: Layers of the classes `DistributedEmbedding` and
        `All2AllDenseEmbedding`.
      SparseOperationKitOptimizer: Optimizers of the class `sok.optimizers.Adam`.

    A MetaGraph stores only the names of the members, so importing a MetaGraph fills the collections with
    names.
    """

    SparseOperationKitEmbeddingLayers = "SparseOperationKitEmbeddingLayers"
    SparseOperationKitOptimizer = "SparseOperationKitOptimizer"


# All embedding variables; `tables/meta_graphs.py` writes them into MetaGraphs. An import goes through
# collections in the order of their names, and this one follows "variables", where tables get their places.
TABLES = "variables_of_sparse_operation_kit"


def _to_proto(member: Any, export_scope: str | None = None) -> wrappers_pb2.StringValue:
    del export_scope
    if hasattr(member, "get_name"):
        return wrappers_pb2.StringValue(value=member.get_name())
    return wrappers_pb2.StringValue(value=getattr(member, "name", member))


def _from_proto(proto: wrappers_pb2.StringValue, import_scope: str | None = None) -> str:
    del import_scope
    return proto.value


# Otherwise every tf.compat.v1.train.Saver would warn that it cannot serialize the collections.
for _key in (
    GraphKeys.SparseOperationKitEmbeddingLayers,
    GraphKeys.SparseOperationKitOptimizer,
):
    ops.register_proto_function(_key, wrappers_pb2.StringValue, _to_proto, _from_proto)


def embedding_variables(graph: Any) -> list[Any]:
    """Returns a graph's embedding variables.

    TABLES also has the names of those that `tables/meta_graphs.py` did not make variables again.
    """
    return [member for member in graph.get_collection(TABLES) if not isinstance(member, str)]


def register_collection_of_tables(key: str) -> None:
    """Lets MetaGraphs leave out the members of a collection: TABLES has them, with their places in it."""
    ops.register_proto_function(
        key, wrappers_pb2.StringValue, lambda member, export_scope=None: None, _from_proto
    )
