"""split_embedding_variable_from_others, at its path in the original SOK."""

from __future__ import annotations

from sparse_operation_kit.tables.embedding_variable import is_embedding_variable

__all__ = ["split_embedding_variable_from_others"]


def split_embedding_variable_from_others(variables: list | tuple) -> tuple[list, list]:
    """Splits trainable variables into embedding variables and other variables, keeping their order.

    Args:
      variables: a list or tuple of variables.

    Returns:
      `(embedding_variables, other_variables)`, two lists.

    Raises:
      ValueError: if `variables` is neither a list nor a tuple.
    """
    if not isinstance(variables, (list, tuple)):
        raise ValueError(f"variables must be a list or a tuple of variables, not {type(variables).__name__}")
    embedding_variables = [v for v in variables if is_embedding_variable(v)]
    other_variables = [v for v in variables if not is_embedding_variable(v)]
    return embedding_variables, other_variables
