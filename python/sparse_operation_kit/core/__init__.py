"""The paths of the original SOK's `core`: names of modules and classes that are elsewhere in this package."""

import sys

from sparse_operation_kit.graphs import graph_keys
from sparse_operation_kit.graphs.graph_keys import GraphKeys
from sparse_operation_kit.optimizers import context_scope
from sparse_operation_kit.ranks import initialize
from sparse_operation_kit.tables import embedding_variable
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable

__all__ = [
    "EmbeddingVariable",
    "GraphKeys",
    "context_scope",
    "embedding_variable",
    "graph_keys",
    "initialize",
]

for _module in (context_scope, embedding_variable, graph_keys, initialize):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
