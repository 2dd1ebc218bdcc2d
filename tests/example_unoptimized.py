"""Runs a program whose sessions run graphs as they were built.

example_unoptimized.py PROGRAM [ARGUMENT]...
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

import tensorflow as tf

from harness import without_optimizations


class Session(tf.compat.v1.Session):
    """A session without optimizations, for programs that give it no configuration."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(config=without_optimizations(), **arguments)


if __name__ == "__main__":
    tf.compat.v1.Session = Session
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
