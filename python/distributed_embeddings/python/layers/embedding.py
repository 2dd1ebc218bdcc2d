"""A path of NVIDIA's distributed-embeddings."""

from sparse_operation_kit.dist_model_parallel import *  # noqa: F403
from sparse_operation_kit.dist_model_parallel import __all__ as __all__
