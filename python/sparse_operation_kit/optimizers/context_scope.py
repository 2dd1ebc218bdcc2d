"""OptimizerScope: the scope in which scripts for the original SOK run their optimizers."""

from __future__ import annotations

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part


class OptimizerScope:
    """A context in which optimizers train the given variables, embedding variables among them.

    Optimizers train embedding variables outside the scope too; it exists for scripts written for the original
    SOK. Scopes may be nested, and a scope may be entered several times.

    Args:
      trainable_variables: a list or tuple of variables.

    Raises:
      ValueError: if `trainable_variables` is neither a list nor a tuple.
    """

    def __init__(self, trainable_variables: list | tuple):
        if not isinstance(trainable_variables, (list, tuple)):
            raise ValueError(
                "trainable_variables must be a list or a tuple of variables, not"
                f" {type(trainable_variables).__name__}"
            )

    def __enter__(self) -> OptimizerScope:
        replacements.install(Part.OPTIMIZERS)
        return self

    def __exit__(self, *exc_info) -> None:
        return None
