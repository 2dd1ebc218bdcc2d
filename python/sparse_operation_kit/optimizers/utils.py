"""The split of variables at the path under which the original SOK has it."""

from sparse_operation_kit.optimizers.variable_split import split_embedding_variable_from_others

__all__ = ["split_embedding_variable_from_others"]
