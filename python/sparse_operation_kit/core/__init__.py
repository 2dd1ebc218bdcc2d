"""Initialization and embedding variables."""

# Importing initial_values registers its replacements of TensorFlow functions.
from sparse_operation_kit.core import initial_values  # noqa: F401
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.core.graph_keys import GraphKeys

__all__ = ["EmbeddingVariable", "GraphKeys"]
