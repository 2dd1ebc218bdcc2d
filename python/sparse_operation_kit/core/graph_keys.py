"""Names of the graph collections that the library uses."""


class GraphKeys:
    """Names of graph collections."""

    SparseOperationKitEmbeddingLayers = "SparseOperationKitEmbeddingLayers"
    SparseOperationKitOptimizer = "SparseOperationKitOptimizer"
