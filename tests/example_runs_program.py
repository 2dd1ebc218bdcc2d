"""Runs of the example as by its command line, but without what takes most of the time of a short run.

Such a run does not draw curves.png, and TensorFlow need not optimize its graph. example_sok_test runs the
example's own `main`.

As a program, several runs in one process, each with its own graph and session, as in a notebook. The argument
is a list of lists of flags, as JSON. Exit status: the highest of the runs'.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

import tensorflow as tf

from ctr import app, report
from harness import without_optimizations


def train(flags: Sequence[str], optimize: bool = False) -> int:
    """Runs the example in this process; returns its exit status."""
    own = app.use_device

    def use_device(*arguments: Any) -> tf.compat.v1.ConfigProto:
        config = own(*arguments)
        return config if optimize else without_optimizations(config)

    with mock.patch.object(report, "plot_curves"), mock.patch.object(app, "use_device", use_device):
        return app.main(flags)


if __name__ == "__main__":
    sys.exit(max([train(run) for run in json.loads(sys.argv[1])]))
