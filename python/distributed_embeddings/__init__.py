"""The names of NVIDIA's distributed-embeddings: those of `sparse_operation_kit.dist_model_parallel`."""

from distributed_embeddings import dist_model_parallel, python  # noqa: F401
from sparse_operation_kit.dist_model_parallel import *  # noqa: F403
from sparse_operation_kit.dist_model_parallel import __all__ as _names

__all__ = [*_names, "dist_model_parallel"]
