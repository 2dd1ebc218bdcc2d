"""What tests of benchmark programs share."""

import os
import pathlib
import subprocess
import sys

# Where builds lie: in a test's runfiles they are beside the sources.
BAZEL_BIN = pathlib.Path(__file__).absolute().parents[1]


def run_program(program: pathlib.Path, *flags: str) -> subprocess.CompletedProcess:
    """Runs a program with the modules and the built programs that the test finds, in a process that may start
    others."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SOK_BAZEL_BIN": str(BAZEL_BIN)}
    return subprocess.run(
        [sys.executable, str(program), *flags], capture_output=True, text=True, env=environment
    )
