"""What programs ask of the module through which the original SOK loads its library."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["in_tensorflow2"]


def in_tensorflow2() -> bool:
    """Returns whether the TensorFlow that is installed is 2.x. Graphs and sessions work in either."""
    return tf.__version__.startswith("2.")
