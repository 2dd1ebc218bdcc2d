"""Names of the graph collections that the library fills."""

from __future__ import annotations

from typing import Any

from google.protobuf import wrappers_pb2
from tensorflow.python.framework import ops


class GraphKeys:
    """Names of graph collections.

    Attributes:
      SparseOperationKitEmbeddingLayers: The layers `DistributedEmbedding` and `All2AllDenseEmbedding`.
      SparseOperationKitOptimizer: The optimizers `sok.optimizers.Adam`.

    A MetaGraph holds the names of what is in them, and importing one gives these names.
    """

    SparseOperationKitEmbeddingLayers = "SparseOperationKitEmbeddingLayers"
    SparseOperationKitOptimizer = "SparseOperationKitOptimizer"


def _to_proto(member: Any, export_scope: str | None = None) -> wrappers_pb2.StringValue:
    del export_scope
    if hasattr(member, "get_name"):
        return wrappers_pb2.StringValue(value=member.get_name())
    return wrappers_pb2.StringValue(value=getattr(member, "name", member))


def _from_proto(proto: wrappers_pb2.StringValue, import_scope: str | None = None) -> str:
    del import_scope
    return proto.value


# Without it every tf.compat.v1.train.Saver would warn that it cannot write what is in the collections.
for _key in (GraphKeys.SparseOperationKitEmbeddingLayers, GraphKeys.SparseOperationKitOptimizer):
    ops.register_proto_function(_key, wrappers_pb2.StringValue, _to_proto, _from_proto)
