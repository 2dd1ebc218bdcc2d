"""A path of NVIDIA's distributed-embeddings."""

from distributed_embeddings.python.layers import dist_model_parallel, embedding

__all__ = ["dist_model_parallel", "embedding"]
