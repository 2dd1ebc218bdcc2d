"""A path of NVIDIA's distributed-embeddings."""

from distributed_embeddings.python import layers

__all__ = ["layers"]
