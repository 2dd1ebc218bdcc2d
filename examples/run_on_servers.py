"""Runs a program on a cluster of this machine, each task of it in a process of its own.

    python examples/run_on_servers.py --parameter_servers 2 --workers 2 examples/train_ctr.py --max_steps 100

Every process gets the cluster and its task in `TF_CONFIG`. Parameter servers run
`python -m sparse_operation_kit.server`; the chief and the workers run the program. The run ends when these
have ended, or one of them or a server fails. Ctrl-C is passed on to them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

# Exit status that shells report for a program ended by signal 0; that of signal N is N higher.
_OF_SIGNAL = 128
# Seconds that processes have to end after SIGTERM.
_PATIENCE_S = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cluster.

    Args:
      arguments: Those of the command line; None takes them from `sys.argv`.

    Returns:
      The exit status: 0 if the chief and all workers ended with 0; 1 if a task failed, which is named on the
      standard error; 128 + N after signal N, SIGINT included.
    """
    parser = argparse.ArgumentParser(description="Runs a program on a cluster of this machine.")
    add = parser.add_argument
    add("--parameter_servers", type=_count, required=True, metavar="N", help="processes that hold the tables")
    add("--workers", type=_count, default=2, metavar="N", help="processes that train, the chief included")
    add("program", help="the Python program of the chief and the workers")
    add("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)
    with _Cluster(options.parameter_servers, options.workers) as cluster:
        return cluster.run([options.program, *options.arguments])


def _count(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes, such as 2")
    return int(text)


class _Cluster:
    """The processes of a cluster. A context manager, which leaves none of them running."""

    def __init__(self, servers: int, workers: int) -> None:
        addresses = [f"127.0.0.1:{port}" for port in _free_ports(servers + workers)]
        self._jobs = {"ps": addresses[:servers], "chief": addresses[servers : servers + 1]}
        if workers > 1:
            self._jobs["worker"] = addresses[servers + 1 :]
        self._servers: dict[str, subprocess.Popen] = {}
        self._training: dict[str, subprocess.Popen] = {}
        self._signal = 0  # the last that came

    def __enter__(self) -> _Cluster:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        running = [*self._training.values(), *self._servers.values()]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _PATIENCE_S
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, deadline - time.monotonic()))
            process.kill()
            process.wait()

    def run(self, command: Sequence[str]) -> int:
        """Runs the command as the chief and the workers; returns the exit status of `main`."""
        for job, addresses in self._jobs.items():
            for index in range(len(addresses)):
                if job == "ps":
                    server = self._start(job, index, ["-m", "sparse_operation_kit.server"])
                    self._servers[f"parameter server {index}"] = server
                else:
                    name = job if job == "chief" else f"worker {index}"
                    self._training[name] = self._start(job, index, command)
        while not self._signal or self._signal == signal.SIGINT:
            failed = self._failed()
            if failed and not self._signal:
                print(f"error: {failed}; the other processes are stopped", file=sys.stderr, flush=True)
                return 1
            if failed or all(process.poll() is not None for process in self._training.values()):
                break
            time.sleep(0.1)
        return _OF_SIGNAL + self._signal if self._signal else 0

    def _start(self, job: str, index: int, command: Sequence[str]) -> subprocess.Popen:
        config = json.dumps({"cluster": self._jobs, "task": {"type": job, "index": index}})
        environment = {"TF_CPP_MIN_LOG_LEVEL": "1", **os.environ, "TF_CONFIG": config}
        # In a session of its own, so that Ctrl-C at the terminal does not end the servers before the workers.
        return subprocess.Popen([sys.executable, *command], env=environment, start_new_session=True)

    def _failed(self) -> str | None:
        """In words, how a process failed; a server's failure makes workers fail, so servers come first."""
        for name, process in [*self._servers.items(), *self._training.items()]:
            status = process.poll()
            if status is not None and (status or name in self._servers):
                # After Ctrl-C, workers end with a status other than 0.
                if not self._signal or name in self._servers:
                    return f"{name} {_end(status)}"
        return None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        if number == signal.SIGINT:
            for process in self._training.values():
                process.send_signal(number)


def _end(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _free_ports(count: int) -> list[int]:
    """Ports of this machine that are free.

    They are below those of outgoing connections, one of which might take a port before a server does.
    """
    ports: set[int] = set()
    while len(ports) < count:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(10_000, 32_768)))
            ports.add(probe.getsockname()[1])
    return list(ports)


if __name__ == "__main__":
    sys.exit(main())
