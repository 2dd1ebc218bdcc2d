"""LazyAdamOptimizer, at its path in the original SOK."""

from sparse_operation_kit.optimizers.lazy_adam import LazyAdamOptimizer

__all__ = ["LazyAdamOptimizer"]
