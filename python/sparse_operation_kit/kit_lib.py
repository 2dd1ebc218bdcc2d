"""The functions of the original SOK's `kit_lib` module that programs call."""

from __future__ import annotations

from sparse_operation_kit import compat

__all__ = ["in_tensorflow2"]


def in_tensorflow2() -> bool:
    """Returns whether the installed TensorFlow is 2.x. Graphs and sessions work in either."""
    return compat.IS_TENSORFLOW_2
