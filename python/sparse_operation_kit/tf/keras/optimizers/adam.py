"""Adam, at its path in the original SOK."""

from sparse_operation_kit.optimizers.adam import Adam

__all__ = ["Adam"]
