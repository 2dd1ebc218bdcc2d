"""The scope in which scripts of the original SOK run their optimizers."""

from __future__ import annotations

from sparse_operation_kit.core import replacements
from sparse_operation_kit.core.replacement_table import Part


class OptimizerScope:
    """A context in which optimizers train the given variables, embedding variables among them.

    Optimizers train embedding variables outside of it too, so that a script needs it only to run unchanged.
    Scopes may be nested, and one object may be entered again.

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
