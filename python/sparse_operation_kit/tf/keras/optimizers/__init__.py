"""Optimizers for embedding and ordinary variables."""

import sys

from sparse_operation_kit.optimizers import adam, lazy_adam
from sparse_operation_kit.optimizers.adam import Adam
from sparse_operation_kit.optimizers.lazy_adam import LazyAdamOptimizer

__all__ = ["Adam", "LazyAdamOptimizer"]

# Paths of the original SOK.
for _module in (adam, lazy_adam):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
