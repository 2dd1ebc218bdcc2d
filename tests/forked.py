"""Runs Python programs in separate processes that have TensorFlow imported already.

Importing TensorFlow takes seconds of a core, and the tests start hundreds of processes that need it. So the
entry point of the tests (tools/run_pytest.py) imports it once and, before it reads the tests, forks a server:
a process with TensorFlow imported but not used, and with one Python thread. The server forks a process for
each program. The program gets arguments, environment, standard streams and modules as if an interpreter had
been started for it, and ends like an interpreter. Without a server, as under plain pytest, an interpreter is
started.

Tests of the start itself, such as of what an import prints, start interpreters themselves.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

# Of a message of the server: a process id and its status.
_MAX_MESSAGE_BYTES = 1 << 10

_server: socket.socket | None = None
_running: dict[int, Process] = {}


class Process:
    """A program that the server runs, with the methods of subprocess.Popen that tests need."""

    def __init__(self, pid: int) -> None:
        """Made by `start`."""
        self.pid = pid
        self.returncode: int | None = None
        _running[pid] = self

    def poll(self) -> int | None:
        """The exit status, or -N if signal N ended the program; None while it runs."""
        while self.returncode is None and select.select([_server], [], [], 0)[0]:
            _take_end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the program's end and returns its status, or raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("a forked program", timeout)
            select.select([_server], [], [], left)
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
    errors = output if errors is None else errors
    if _server is None:
        return _started_interpreter([os.fspath(program), *args], output, errors, env)
    request = [os.fspath(program), *args], os.fspath(output), os.fspath(errors), env, os.getcwd()
    # In a file, because a message of a socket has a limited size.
    with tempfile.TemporaryFile() as file:
        pickle.dump(request, file)
        file.flush()
        _server.sendmsg([b"r"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", file.fileno()))])
        pid = _take_end()
        while pid is None:
            pid = _take_end()
    return Process(pid)


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


def start_server() -> Callable[[], Any] | None:
    """Forks the server of this process. Call it once, at the start of a program, with one Python thread.

    Returns:
      None in this process. In each process that the server forks, a function that runs the requested program;
      the caller must call it and then end like an interpreter.
    """
    global _server
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _flush()
    if os.fork():
        other.close()
        _server = mine
        return None
    mine.close()
    request = _serve(other)
    other.close()
    return lambda: _run_program(*request)


def _take_end() -> int | None:
    """Reads a message of the server: returns the id of a started process, or records the end of one."""
    message = _server.recv(_MAX_MESSAGE_BYTES)
    assert message, "the server of forked processes has ended"
    pid, status = pickle.loads(message)
    if status is None:
        return pid
    _running.pop(pid).returncode = exit_code(status)
    return None


def _serve(requests: socket.socket) -> tuple:
    """Forks a process for each request and returns the request in it. Does not return in the server."""
    ends, ended = os.pipe()
    os.set_blocking(ended, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended, warn_on_full_buffer=False)
    while True:
        ready = select.select([requests, ends], [], [])[0]
        if ends in ready:
            os.read(ends, 4096)
            _report_ends(requests)
        if requests in ready:
            message, rights, _, _ = requests.recvmsg(1, socket.CMSG_SPACE(4))
            if not message:
                os._exit(0)
            (file,) = struct.unpack("i", rights[0][2])
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(ends)
                os.close(ended)
                with open(file, "rb") as request:
                    request.seek(0)
                    return pickle.load(request)
            os.close(file)
            requests.send(pickle.dumps((pid, None)))


def exit_code(status: int) -> int:
    """The exit code in a status of `os.waitpid`; -N if signal N ended the process."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def _report_ends(requests: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError, BrokenPipeError):
        end = os.waitpid(-1, os.WNOHANG)
        while end[0]:
            requests.send(pickle.dumps(end))
            end = os.waitpid(-1, os.WNOHANG)


def _run_program(command: list[str], output: str, errors: str, env: dict[str, str], cwd: str) -> None:
    """Turns this process into the program's, and runs it."""
    for number, path in ((1, output), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    path = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [
        os.path.dirname(os.path.abspath(command[0])),
        *path,
        *(entry for entry in sys.path if entry not in path),
    ]
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")


def _started_interpreter(
    command: list[str], output: str | os.PathLike, errors: str | os.PathLike, env: dict[str, str]
) -> subprocess.Popen:
    with open(output, "ab") as out, open(errors, "ab") as err:
        return subprocess.Popen(
            [sys.executable, *command], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
