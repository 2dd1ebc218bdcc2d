"""split_embedding_variable_from_others, at its path in the original SOK."""

from sparse_operation_kit.optimizers.variable_split import split_embedding_variable_from_others

__all__ = ["split_embedding_variable_from_others"]
