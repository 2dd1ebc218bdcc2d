"""Adam at the path under which the original SOK has it."""

from sparse_operation_kit.optimizers.adam import Adam

__all__ = ["Adam"]
