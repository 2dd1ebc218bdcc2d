"""Initialization and embedding variables."""

from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.core.graph_keys import GraphKeys

__all__ = ["EmbeddingVariable", "GraphKeys"]
