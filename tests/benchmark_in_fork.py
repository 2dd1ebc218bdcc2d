"""Runs a benchmark, and the Python processes that it starts, in forks of a process with TensorFlow imported.

    benchmark_in_fork.py PROGRAM [ARGUMENT]...

A benchmark starts `sys.executable` for each rank and each library that it measures, and each would import
TensorFlow for longer than it measures. Here `sys.executable` is a script that asks tools/fork_server.py for
the process. Without a server it is an interpreter as usual.
"""

from __future__ import annotations

import os
import pathlib
import runpy
import shlex
import sys
import tempfile

_FORK_SERVER = pathlib.Path(__file__).absolute().parents[1] / "tools" / "fork_server.py"
_AS_INTERPRETER = "--as-interpreter"


def _run_benchmark(program: str, arguments: list[str]) -> None:
    command = [sys.executable, str(_FORK_SERVER), "--fork", os.path.abspath(__file__), _AS_INTERPRETER]
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "python")
        script.write_text(f'#!/bin/sh\nexec {" ".join(map(shlex.quote, command))} "$@"\n')
        script.chmod(0o700)
        sys.executable = str(script)
        _run_file(program, arguments)


def _interpret(arguments: list[str]) -> None:
    """What an interpreter does with these arguments: `-m MODULE …`, `-c CODE …` or `FILE …`."""
    if arguments[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.path[0] = os.getcwd()
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        _run_file(arguments[0], arguments[1:])


def _run_file(program: str, arguments: list[str]) -> None:
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == _AS_INTERPRETER:
        _interpret(sys.argv[2:])
    else:
        _run_benchmark(sys.argv[1], sys.argv[2:])
