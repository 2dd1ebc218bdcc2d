"""Runs Python programs in separate processes that have TensorFlow imported already.

Importing TensorFlow takes seconds of a core, and the tests start hundreds of processes that need it. So
tools/fork_server.py forks them, from a process with TensorFlow imported but not used, and with one Python
thread. A program gets arguments, environment, standard streams and modules as if an interpreter had been
started for it, and ends like an interpreter. Without a server, an interpreter is started.

Tests of the start itself, such as of what an import prints, start interpreters themselves.

Usage: forked.py PROGRAM [ARGUMENT]...
         what each process runs: the program, with the device of tests
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import fork_server


class Process:
    """A program that the server runs, with the methods of subprocess.Popen that tests need.

    It is killed when this object is deleted.
    """

    def __init__(self, server: socket.socket, pid: int) -> None:
        """Made by `start`."""
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, or -N if signal N ended the program; None while it runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the program's end and returns its status, or raises subprocess.TimeoutExpired."""
        if self._ended_within(timeout) is None:
            raise subprocess.TimeoutExpired("a forked program", timeout)
        return self.returncode

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._server], [], [], seconds)[0]:
            self.returncode = fork_server.status_of(self._server)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal to the program, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends the program, if it still runs."""
        self.send_signal(signal.SIGKILL)


def start(
    program: str | os.PathLike,
    *args: str,
    output: str | os.PathLike,
    errors: str | os.PathLike | None = None,
    env: dict[str, str] | None = None,
) -> Process | subprocess.Popen:
    """Starts a Python program in the working directory of this process.

    Args:
      program: the path of its file.
      *args: its arguments.
      output: the file that its standard output is written to.
      errors: the file that its standard error is written to; `output` if None.
      env: its environment; this process's if None.
    """
    env = dict(os.environ if env is None else env)
    command = [os.path.abspath(__file__), os.fspath(program), *args]
    # It can import what this process can import.
    path = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path += [entry for entry in sys.path if entry and entry not in path]
    with open(os.devnull) as none, open(output, "ab") as out:
        with open(output if errors is None else errors, "ab") as err:
            streams = [none.fileno(), out.fileno(), err.fileno()]
            started = fork_server.start_in_fork(command, streams, env, ["", *path])
            if started is not None:
                return Process(*started)
            return subprocess.Popen(
                [sys.executable, *command],
                env={**env, "PYTHONPATH": os.pathsep.join(path)},
                stdin=none,
                stdout=out,
                stderr=err,
            )


def run(
    program: str | os.PathLike, *args: str, env: dict[str, str] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess:
    """Runs a Python program to its end, as `start`; returns its outputs as text.

    Raises:
      subprocess.TimeoutExpired: The program ran for longer than `timeout` seconds and was killed.
    """
    with tempfile.TemporaryDirectory(prefix="forked-") as name:
        output, errors = pathlib.Path(name, "output"), pathlib.Path(name, "errors")
        process = start(program, *args, output=output, errors=errors, env=env)
        try:
            process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            [os.fspath(program), *args],
            process.returncode,
            output.read_text(errors="replace"),
            errors.read_text(errors="replace"),
        )


def run_code(
    code: str, *args: str, env: dict[str, str] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess:
    """Runs a program's text, as `run` runs a file."""
    with tempfile.TemporaryDirectory(prefix="forked-") as name:
        program = pathlib.Path(name, "program.py")
        program.write_text(code)
        return run(program, *args, env=env, timeout=timeout)


def environment(**changes: str) -> dict[str, str]:
    """The environment of an interpreter that can import what this process can import, with `changes`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **changes}


def run_interpreter(*args: str, timeout: float = 300, **changes: str) -> subprocess.CompletedProcess:
    """Runs a new interpreter, in which TensorFlow is not imported, in `environment(**changes)`."""
    return subprocess.run(
        [sys.executable, *args],
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def succeeded(result: subprocess.CompletedProcess) -> str:
    """The standard output of a program, which must have ended with status 0."""
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    return result.stdout


def wait_for(condition: Callable[[], Any], seconds: float = 100, message: str = "it did not happen") -> Any:
    """What `condition` returns as soon as that is true. Fails with a message after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"{message} within {seconds} s"
        time.sleep(0.02)


def write_no_graph_files() -> None:
    """Keeps MonitoredTrainingSession and Estimator from writing graph.pbtxt in this process.

    Writing a graph as text takes longer than a few steps of it, and no test reads the file.
    """
    from tensorflow.python.training import training_util

    training_util.write_graph = lambda *arguments, **options: None


def _main() -> None:
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    write_no_graph_files()
    if os.environ.get("SOK_TEST_DEVICE"):
        # In each process: CUDA has no device in a process forked from one that has asked for it.
        import fake_gpu_device  # noqa: F401
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _main()
