"""What tests of benchmark programs share."""

import os
import pathlib
import subprocess
import sys


def run_program(program: pathlib.Path, *flags: str) -> subprocess.CompletedProcess:
    """Runs a program with the modules that the test finds, in a process that may start others."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, str(program), *flags], capture_output=True, text=True, env=environment
    )
