"""Forks test processes from one that has imported TensorFlow, which takes 2.5 s, longer than most tests.

tools/test.sh runs the server while Bazel runs tests. The server has imported TensorFlow and pytest, has not
used them, and has imported nothing from this checkout. It has compiled the checkout's modules: Bazel shows
the sources to each test at another path, for which Python finds no compiled files. tools/run_pytest.py, the
program of every Python test, connects to the server and sends its arguments, environment, working directory
and standard streams. The server forks a process that runs the test with them, and the client waits until that
process ends. Tests get processes of their own in the same way (`tests/forked.py`). Without a server, as under
a plain `bazel test`, each program imports TensorFlow itself.

A server accepts only clients of the same checkout, interpreter and user.

Usage: fork_server.py COMMAND...
         runs the command beside a server; exits with the command's status
       fork_server.py --fork PROGRAM [ARGUMENT]...
         runs a Python program in a process that the server forks, or alone without a server; ends as it does
"""

from __future__ import annotations

import _imp
import array
import gc
import hashlib
import importlib.machinery
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
from collections.abc import Callable, Sequence

_STREAMS = (0, 1, 2)
# The folders of modules that tests and programs import.
_MODULES = ("python", "tests", "examples", "benchmarks")


def start_in_fork(
    command: list[str], streams: Sequence[int], environment: dict[str, str], path: list[str]
) -> tuple[socket.socket, int] | None:
    """Starts a Python program in a process forked by the server.

    Args:
      command: the program and its arguments.
      streams: the descriptors of its standard streams.
      environment: its environment.
      path: its `sys.path`.

    Returns:
      None if no server runs. Else what `status_of` reads, and the process id. If the former is closed before
      the process has ended, the process is killed.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.connect(_address())
    except OSError:
        server.close()
        return None
    if _peer_user(server) != os.getuid():
        server.close()
        return None
    # In a file, because a message of a socket has a limited size.
    with tempfile.TemporaryFile() as file:
        pickle.dump((command, environment, os.getcwd(), path), file)
        file.flush()
        rights = array.array("i", [*streams, file.fileno()]).tobytes()
        server.sendmsg([b"r"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    return server, pickle.loads(server.recv(64))


def status_of(server: socket.socket) -> int:
    """Waits for the end of a started process; returns its exit status, -N if signal N ended it."""
    answer = server.recv(64)
    return pickle.loads(answer) if answer else 1


def run_in_fork(command: list[str]) -> int | None:
    """Runs a Python program as `start_in_fork`, like this process; returns its exit status."""
    started = start_in_fork(command, _STREAMS, dict(os.environ), sys.path)
    if started is None:
        return None
    with started[0] as server:
        return status_of(server)


def _run_program_in_fork(command: list[str]) -> int:
    """What --fork does; returns the exit status."""
    sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
    status = run_in_fork(command)
    if status is None:
        os.execv(sys.executable, [sys.executable, *command])
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


def _address() -> str:
    """The name of the server's socket, in Linux's abstract namespace, so that no file is left behind."""
    identity = f"{os.path.dirname(os.path.realpath(__file__))} {sys.prefix}"
    return f"\0sok-fork-server-{os.getuid()}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _peer_user(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1]


def _serve(listener: socket.socket, over: int) -> Callable[[], object]:
    """Accepts requests until the pipe `over` is closed.

    Returns only in the processes that are forked for requests; the result runs the requested program.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the watching processes are not waited for
    while True:
        if over in select.select([listener, over], [], [])[0]:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return _watched_program(connection)


def _watched_program(connection: socket.socket) -> Callable[[], object]:
    """Forks the program's process, and returns in it.

    The calling process waits for the program, kills it if the client ends first, and then exits.
    """
    if _peer_user(connection) != os.getuid():
        os._exit(1)
    _, rights, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4 * (len(_STREAMS) + 1)))
    *streams, file = array.array("i", rights[0][2])
    # Without os.pidfd_open, which Python 3.7 lacks: the signal of the child's end writes a byte to the pipe.
    ends, ended = os.pipe()
    os.set_blocking(ended, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended, warn_on_full_buffer=False)
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (ends, ended):
            os.close(descriptor)
        connection.close()
        os.setpgid(0, 0)  # also called by the parent, as either process may run first
        with open(file, "rb") as request:
            request.seek(0)
            arguments = pickle.load(request)
        return lambda: _run_program(streams, *arguments)
    for descriptor in (*streams, file):
        os.close(descriptor)
    os.setpgid(pid, pid)
    connection.send(pickle.dumps(pid))
    status = _wait(pid, ends, connection)
    if status is None:
        os.killpg(pid, signal.SIGKILL)
    else:
        connection.send(pickle.dumps(exit_code(status)))
    os._exit(0)


def exit_code(status: int) -> int:
    """The exit code in a status of `os.waitpid`; -N if signal N ended the process."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def _wait(pid: int, ends: int, connection: socket.socket) -> int | None:
    """Returns the status of `os.waitpid` when the process has ended, or None if the client ends first."""
    while True:
        ready = select.select([ends, connection], [], [])[0]
        if ends in ready:
            os.read(ends, 4096)
            # The signal also comes if the process is only stopped.
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
        if connection in ready:
            return None


def _run_program(
    streams: list[int], command: list[str], environment: dict[str, str], cwd: str, path: list[str]
) -> None:
    for number, stream in zip(_STREAMS, streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")


def _compile_modules(checkout: pathlib.Path) -> None:
    """Compiles the modules of a checkout, for forked processes that import modules with the same source."""
    compiled = {}
    for path in [path for folder in _MODULES for path in sorted(checkout.joinpath(folder).rglob("*.py"))]:
        # pytest compiles tests itself, with other assertions.
        if path.name.endswith("_test.py"):
            continue
        source = path.read_bytes()
        try:
            compiled[source] = compile(source, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue  # an error for those that import it
    compile_source = importlib.machinery.SourceFileLoader.source_to_code

    def source_to_code(self, data, path, *args, **options):
        # Only once: another module with the same source has code of its own.
        code = compiled.pop(data, None)
        if code is None:
            return compile_source(self, data, path, *args, **options)
        # As Python itself does for a compiled file that was moved.
        _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
        return code

    importlib.machinery.SourceFileLoader.source_to_code = source_to_code


def main(command: list[str]) -> int:
    """Runs the command with a server beside it; returns the command's exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(_address())
        except OSError:  # another run of the tests has a server
            return subprocess.call(command)
        listener.listen()
        over, running = os.pipe()  # closed when this process ends, for any reason
        server = os.fork()
        if server:
            listener.close()
            status = subprocess.call(command)
            os.close(running)
            os.waitpid(server, 0)
            return status
        os.close(running)
        import pytest  # noqa: F401
        import tensorflow  # noqa: F401

        _compile_modules(pathlib.Path(__file__).resolve().parent.parent)
        # Forked processes need not garbage-collect the objects they share, which would take each of them a
        # second.
        gc.freeze()
        _serve(listener, over)()
        return 0


if __name__ == "__main__":
    sys.exit(_run_program_in_fork(sys.argv[2:]) if sys.argv[1:2] == ["--fork"] else main(sys.argv[1:]))
