"""What tests of benchmark programs share."""

import os
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).absolute().parents[1]  # in runfiles what is built lies beside its sources


def run_program(program: pathlib.Path, *flags: str) -> subprocess.CompletedProcess:
    """Runs a program with the modules and the built programs that the test finds, in a process that may start
    others."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SOK_BAZEL_BIN": str(_ROOT)}
    return subprocess.run(
        [sys.executable, str(program), *flags], capture_output=True, text=True, env=environment
    )
