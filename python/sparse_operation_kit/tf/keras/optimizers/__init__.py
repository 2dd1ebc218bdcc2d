"""Optimizers for embedding and ordinary variables."""

from sparse_operation_kit.tf.keras.optimizers.adam import Adam
from sparse_operation_kit.tf.keras.optimizers.lazy_adam import LazyAdamOptimizer

__all__ = ["Adam", "LazyAdamOptimizer"]
