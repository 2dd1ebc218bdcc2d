"""Clusters of parameter servers and workers, in this process or each task in one of its own, for tests."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import forked
import sparse_operation_kit as sok

v1 = tf.compat.v1

SERVERS = 3
WORKERS = 2


def free_ports(count: int) -> list[int]:
    """Ports of this machine that are free.

    They are below those of outgoing connections, one of which might take a port before a server does.
    """
    ports: set[int] = set()
    while len(ports) < count:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(10_000, 32_768)))
            ports.add(probe.getsockname()[1])
    return list(ports)


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


def scope(servers: int, worker: int = 0, server_device: str = "", worker_device: str = "") -> Any:
    """The scope of a model that a worker trains on the first servers. Their devices are open if not given."""
    return v1.device(
        v1.train.replica_device_setter(
            ps_tasks=servers,
            ps_device=f"/job:ps/{server_device}".rstrip("/"),
            worker_device=f"/job:worker/task:{worker}/{worker_device}".rstrip("/"),
        )
    )


@contextlib.contextmanager
def graph_on(servers: int, worker: int = 0, **devices: str) -> Iterator[tf.Graph]:
    """A new default graph with a seed, in the scope of `servers` servers; without any, of none."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(7)
        graph._target = _started()[1][worker].target if servers else ""
        with scope(servers, worker, **devices) if servers else contextlib.nullcontext():
            yield graph


def session(graph: tf.Graph) -> v1.Session:
    """A session of the worker for which `graph_on` made the graph; without servers one of this process."""
    return v1.Session(graph._target, graph=graph)


@contextlib.contextmanager
def started(graph: tf.Graph) -> Iterator[v1.Session]:
    """A `session` in which the initializers of all variables have run, which run sok.Init too."""
    with graph.as_default():
        sok.ranks.initialize.ready_graph()
        initializer = v1.global_variables_initializer()
    with session(graph) as of_worker:
        of_worker.run(initializer)
        yield of_worker


def assert_close(actual: Any, expected: Any, rtol: float, atol: float = 0.0) -> None:
    """Compares nested lists and dicts of numbers."""
    tf.nest.map_structure(
        functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), actual, expected
    )


def run_tasks(
    tasks: Sequence[tuple[str, int]],
    folder: pathlib.Path,
    checkpoints: pathlib.Path,
    program: str,
    *arguments: str,
    awaited: str = "*.index",
) -> None:
    """Runs a program in a process for each task of a cluster, until all but the servers have ended well.

    Args:
      tasks: Kind and number of each, as in `TF_CONFIG`. Workers start when there is a checkpoint: one that
        finds no variables asks for them again half a minute later.
      folder: The processes' outputs are written there, to `KIND_NUMBER.log`.
      checkpoints: The folder of the chief's checkpoints, or of other files that it writes.
      program: The path of the program.
      *arguments: Its arguments.
      awaited: The pattern of the first file that workers wait for.
    """
    folder.mkdir(exist_ok=True)
    cluster: dict[str, list[str]] = {}
    for (kind, _), port in zip(tasks, free_ports(len(tasks))):
        if kind != "evaluator":
            cluster.setdefault(kind, []).append(f"127.0.0.1:{port}")
    logs = {task: folder / "{}_{}.log".format(*task) for task in tasks}
    started: dict[tuple[str, int], Any] = {}
    try:
        for task in tasks:
            config = json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}})
            env = {**os.environ, "TF_CONFIG": config}
            if task[0] == "worker":
                _wait_for(lambda: any(checkpoints.glob(awaited)), started, logs)
            started[task] = forked.start(program, *arguments, output=logs[task], env=env)
        for task, process in started.items():
            if task[0] != "ps":
                assert process.wait(timeout=120) == 0, logs[task].read_text()[-4000:]
    except subprocess.TimeoutExpired as late:
        raise AssertionError({task: logs[task].read_text()[-2000:] for task in started}) from late
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def _wait_for(
    condition: Callable[[], bool],
    started: dict[tuple[str, int], Any],
    logs: dict[tuple[str, int], pathlib.Path],
) -> None:
    deadline = time.monotonic() + 100
    while not condition() and time.monotonic() < deadline:
        for task, process in started.items():
            assert process.poll() is None, logs[task].read_text()[-4000:]
        time.sleep(0.05)
