"""Runs a parameter server: `python -m sparse_operation_kit.server`.

The process holds parts of tables and ordinary variables for the workers of a cluster. It needs no program of
its own, but the library's ops, which importing the package loads.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_NAME = "python -m sparse_operation_kit.server"
_DESCRIPTION = """Runs a parameter server until it gets SIGTERM or SIGINT. The cluster and the server's task
come from the options, or else from TF_CONFIG:
{"cluster": {"ps": ["host:port", ...], "worker": [...]}, "task": {"type": "ps", "index": 0}}."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the server that the arguments or `TF_CONFIG` describe.

    Args:
      arguments: Those of the command line; None takes them from `sys.argv`.

    Raises:
      SystemExit: With status 0 after a signal; with 2 and a message if the cluster or the task is missing or
        wrong, or the server cannot start.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        cluster, job, index = _task_of(options)
        address = _address(cluster, job, index)
    except ValueError as error:
        parser.error(str(error))
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        server = tf.compat.v1.train.Server(cluster, job_name=job, task_index=index)
    except tf.errors.OpError as error:
        parser.error(f"the server for {address} cannot start: {error.message}")
    print(f"parameter server {index} of {len(cluster[job])} serves at {address}", flush=True)
    stopped.wait()
    del server  # its threads end with the process
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_NAME, description=_DESCRIPTION)
    parser.add_argument("--cluster", metavar="JSON", help="the cluster's jobs, each a list of host:port")
    parser.add_argument("--job_name", help="the server's job; ps by default")
    parser.add_argument("--task_index", type=int, metavar="N", help="the server's number in its job")
    return parser


def _task_of(options: argparse.Namespace) -> tuple[dict[str, Any], str, Any]:
    """Returns the cluster, and the job and number of the server in it.

    Raises:
      ValueError: They are not given, or not as they must be.
    """
    config = {} if options.cluster else _config()
    cluster = _parsed(options.cluster, "--cluster") if options.cluster else config.get("cluster")
    where = "--cluster" if options.cluster else "TF_CONFIG"
    if not isinstance(cluster, dict) or not cluster:
        raise ValueError(f"{where} must have a cluster with lists of host:port by job, not {cluster!r}")
    task = config.get("task", {})
    if not isinstance(task, dict):
        raise ValueError(f"the task of TF_CONFIG must have a type and an index, not be {task!r}")
    job = options.job_name or task.get("type", "ps")
    if not options.job_name and job != "ps":
        raise ValueError(f"the task of TF_CONFIG is of type {job!r}, not 'ps'; --job_name names another job")
    index = task.get("index") if options.task_index is None else options.task_index
    if index is None:
        raise ValueError(f"which task of job '{job}' is this? Give --task_index or the task of TF_CONFIG")
    return cluster, job, index


def _config() -> dict[str, Any]:
    text = os.environ.get("TF_CONFIG")
    if not text:
        raise ValueError("there is no cluster: set TF_CONFIG, or give --cluster and --task_index")
    config = _parsed(text, "TF_CONFIG")
    if not isinstance(config, dict):
        raise ValueError(f"TF_CONFIG must be a JSON object, not {text}")
    return config


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{what} is not JSON ({error}): {text}") from error


def _address(cluster: dict[str, Any], job: str, index: Any) -> str:
    """Returns the server's address, after checking the cluster.

    Raises:
      ValueError: The cluster's jobs are no lists of addresses, the server is not among them, or its port is
        in use on this machine.
    """
    for name, addresses in cluster.items():
        if not isinstance(addresses, list) or not all(_port(one) for one in addresses):
            raise ValueError(f"job '{name}' of the cluster must be a list of host:port, not {addresses!r}")
    if job not in cluster:
        raise ValueError(f"job '{job}' is not in the cluster, whose jobs are {', '.join(sorted(cluster))}")
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(cluster[job]):
        raise ValueError(
            f"task {index!r} is not in job '{job}' of the cluster, which has {len(cluster[job])}"
        )
    address = cluster[job][index]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", _port(address)))
        except OSError as error:
            raise ValueError(
                f"port {_port(address)} of {address} cannot be used: {error.strerror}"
            ) from error
    return address


def _port(address: Any) -> int:
    """Returns the port of host:port; 0 if it is something else."""
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    return int(port) if host and port.isdigit() and int(port) < 2**16 else 0


if __name__ == "__main__":
    main()
