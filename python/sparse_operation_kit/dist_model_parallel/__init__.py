"""Embedding tables divided over ranks, with the interface of NVIDIA's distributed-embeddings.

`python -m sparse_operation_kit.dist_model_parallel plan` shows where tables would be placed.
"""

from sparse_operation_kit.dist_model_parallel.distributed_embedding import DistributedEmbedding
from sparse_operation_kit.dist_model_parallel.embedding import (
    ConcatOneHotEmbedding,
    Embedding,
    embedding_lookup,
)
from sparse_operation_kit.dist_model_parallel.integer_lookup import IntegerLookup
from sparse_operation_kit.dist_model_parallel.strategy import DistEmbeddingStrategy
from sparse_operation_kit.dist_model_parallel.training import (
    BroadcastGlobalVariablesCallback,
    DistributedGradientTape,
    DistributedOptimizer,
    broadcast_variables,
)

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "ConcatOneHotEmbedding",
    "DistEmbeddingStrategy",
    "DistributedEmbedding",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Embedding",
    "IntegerLookup",
    "broadcast_variables",
    "embedding_lookup",
]
