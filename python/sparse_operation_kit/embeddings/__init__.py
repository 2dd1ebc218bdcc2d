"""Embedding layers."""

# A path of the original SOK, which programs may use without importing it.
from sparse_operation_kit.embeddings import tf_distributed_embedding  # noqa: F401
