"""A cluster of parameter servers and workers in this process, for tests of programs that train on them."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

SERVERS = 3
WORKERS = 2


def free_ports(count: int) -> list[int]:
    """Ports of this machine that are free."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@functools.lru_cache(maxsize=None)
def _started() -> tuple[list[Any], list[Any]]:
    # A server cannot be stopped, so the process has one cluster.
    ports = [f"127.0.0.1:{port}" for port in free_ports(SERVERS + WORKERS)]
    cluster = {"ps": ports[:SERVERS], "worker": ports[SERVERS:]}

    # Servers of one process share their threads, and in 1.15 a call of a function on a server holds one.
    threads = v1.ConfigProto(inter_op_parallelism_threads=16)

    def start(job: str, count: int) -> list[Any]:
        return [
            v1.train.Server(cluster, job_name=job, task_index=task, config=threads) for task in range(count)
        ]

    return start("ps", SERVERS), start("worker", WORKERS)


def scope(servers: int, worker: int = 0) -> Any:
    """The scope of a model that is trained by a worker on the first servers."""
    device = f"/job:worker/task:{worker}"
    return v1.device(v1.train.replica_device_setter(ps_tasks=servers, worker_device=device))


@contextlib.contextmanager
def graph_on(servers: int, worker: int = 0) -> Iterator[tf.Graph]:
    """A new default graph with a seed, in the scope of `servers` servers; without any, of none."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(7)
        graph._target = _started()[1][worker].target if servers else ""
        with scope(servers, worker) if servers else contextlib.nullcontext():
            yield graph


def session(graph: tf.Graph) -> v1.Session:
    """A session of the worker for which `graph_on` made the graph; without servers one of this process."""
    return v1.Session(graph._target, graph=graph)
