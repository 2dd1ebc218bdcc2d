"""LazyAdamOptimizer at the path under which the original SOK has it."""

from sparse_operation_kit.optimizers.lazy_adam import LazyAdamOptimizer

__all__ = ["LazyAdamOptimizer"]
