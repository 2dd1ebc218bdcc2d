"""Helpers for tests of benchmark programs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import forked

# The folder of builds: in a test's runfiles, they are beside the sources.
BAZEL_BIN = pathlib.Path(__file__).absolute().parents[1]
_IN_FORK = pathlib.Path(__file__).with_name("benchmark_in_fork.py")


def run_program(program: pathlib.Path, *flags: str) -> subprocess.CompletedProcess:
    """Runs a program in a process that can import the test's modules and find the test's built programs."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SOK_BAZEL_BIN": str(BAZEL_BIN)}
    return forked.run(_IN_FORK, str(program), *flags, env=environment)
