"""Sparse Operation Kit: embedding tables for graph-mode TensorFlow.

Tables are hash maps from 64-bit keys to rows. A lookup of many features runs as one op, and optimizers update
the rows in place. Call `sok.Init` before you create tables. The layers are `DistributedEmbedding` and
`All2AllDenseEmbedding`; the optimizers of `tf.compat.v1.train` train them.
"""

import importlib
from typing import Any

from sparse_operation_kit import feature_columns, kit_lib, optimizers, serving, tf
from sparse_operation_kit._version import __version__
from sparse_operation_kit.embeddings.all2all_dense_embedding import All2AllDenseEmbedding
from sparse_operation_kit.embeddings.distributed_embedding import DistributedEmbedding
from sparse_operation_kit.embeddings.embedding_layer import get_embedding
from sparse_operation_kit.feature_columns import (
    categorical_column_with_embedding,
    group_embedding_column_scope,
)
from sparse_operation_kit.graphs.graph_keys import GraphKeys
from sparse_operation_kit.lookup.embedding_lookup import (
    group_embedding_lookup,
    group_embedding_lookup_sparse,
)
from sparse_operation_kit.lookup.prefetch import LookupPrefetch
from sparse_operation_kit.optimizers.context_scope import OptimizerScope
from sparse_operation_kit.optimizers.distributed import DistributedOptimizer
from sparse_operation_kit.optimizers.utils import split_embedding_variable_from_others
from sparse_operation_kit.ranks.initialize import Init
from sparse_operation_kit.saver import IncrementalCheckpointHook, Saver, init_from_checkpoint
from sparse_operation_kit.tables import meta_graphs as _meta_graphs  # noqa: F401 - registers functions
from sparse_operation_kit.tables import variable_functions as _variable_functions  # noqa: F401 - the same
from sparse_operation_kit.tables.broadcast import (
    BroadcastGlobalVariablesHook,
    broadcast_global_variables,
    broadcast_variables,
)
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable
from sparse_operation_kit.tables.get_embedding_variable import EmbeddingVariableOption, get_embedding_variable
from sparse_operation_kit.tables.row_policies import (
    CBFFilter,
    CounterFilter,
    GlobalStepEvict,
    InitializerOption,
    L2WeightEvict,
)
from sparse_operation_kit.tables.table_statistics import TableStatistics, table_statistics
from sparse_operation_kit.tables.table_summary_hook import TableSummaryHook

__all__ = [
    "L2WeightEvict",
    "InitializerOption",
    "GlobalStepEvict",
    "CounterFilter",
    "CBFFilter",
    "All2AllDenseEmbedding",
    "BroadcastGlobalVariablesHook",
    "DistributedEmbedding",
    "DistributedOptimizer",
    "EmbeddingVariable",
    "EmbeddingVariableOption",
    "GraphKeys",
    "IncrementalCheckpointHook",
    "Init",
    "LookupPrefetch",
    "OptimizerScope",
    "Saver",
    "TableStatistics",
    "TableSummaryHook",
    "__version__",
    "broadcast_global_variables",
    "broadcast_variables",
    "categorical_column_with_embedding",
    "feature_columns",
    "get_embedding",
    "get_embedding_variable",
    "group_embedding_column_scope",
    "group_embedding_lookup",
    "group_embedding_lookup_sparse",
    "init_from_checkpoint",
    "kit_lib",
    "optimizers",
    "serving",
    "split_embedding_variable_from_others",
    "table_statistics",
    "tf",
]

# Names of other systems, which the rest of the package does without.
_DIALECTS = ("core", "deeprec", "dist_model_parallel", "experiment")


def __getattr__(name: str) -> Any:
    """Imports a dialect when a program first names it as an attribute."""
    if name not in _DIALECTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
