"""A path of NVIDIA's distributed-embeddings."""

from sparse_operation_kit.dist_model_parallel import embedding_lookup

__all__ = ["embedding_lookup"]
