"""Runs a program whose sessions run graphs as they were built.

    example_unoptimized.py PROGRAM [ARGUMENT]...

TensorFlow's optimizations of a large graph take longer than a few steps of it.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

import tensorflow as tf


class Session(tf.compat.v1.Session):
    """A session without optimizations, for programs that give it no configuration."""

    def __init__(self, **arguments: Any) -> None:
        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        super().__init__(config=config, **arguments)


if __name__ == "__main__":
    tf.compat.v1.Session = Session
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
