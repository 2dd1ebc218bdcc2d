"""Starts a cluster of parameter servers and workers on this machine, and is the program of each task."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench import processes
from bench.jobs import Job

_NETWORK = pathlib.Path("/proc/net/dev")


class Turn(NamedTuple):
    """What all workers of a cluster did at the same time in one turn.

    Attributes:
      steps: Milliseconds of each step, by worker.
      worker_cpu, server_cpus: Processor milliseconds of a step: of its worker, and of each server.
      megabytes: Sent through the loopback device for a step, by all programs of the machine.
      rate: Steps per second, of all workers together.
    """

    steps: list[list[float]]
    worker_cpu: float
    server_cpus: list[float]
    megabytes: float
    rate: float


class Cluster:
    """Running processes of parameter servers and workers. A context manager: leaving it ends them.

    Args:
      module: The module with the models: `module.build(side, job, place)` returns a `Model`, and
        `module.load(side)` loads the ops that it needs.
      sides: The names of its models' sides.
      servers, workers: How many.
      folder: For the processes' logs.
      python: The interpreter of the processes, by default this one.
      variables: Their environment variables, by default those of `processes.environment`.
    """

    def __init__(
        self,
        module: str,
        sides: Sequence[str],
        servers: int,
        workers: int,
        folder: pathlib.Path,
        python: str | pathlib.Path = sys.executable,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        cluster = {
            name: [f"127.0.0.1:{free_port()}" for _ in range(count)]
            for name, count in (("ps", servers), ("worker", workers))
        }
        self._started: list[processes.MeasuringProcess] = []
        description = json.dumps({"module": module, "sides": list(sides), "cluster": cluster})
        for name, addresses in cluster.items():
            for task in range(len(addresses)):
                command = [str(python), "-m", "bench.servers", description, name, str(task)]
                who = f"{' and '.join(sides)}, {name} {task}"
                log = folder / f"{'_'.join(sides)}_{name}_{task}.log"
                process = processes.MeasuringProcess(who, command, variables or processes.environment(), log)
                self._started.append(process)
        self.sides = sides
        self.servers, self.workers = self._started[:servers], self._started[servers:]
        self.pool = concurrent.futures.ThreadPoolExecutor(workers)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        # Workers first: they wait for servers that have ended.
        for process in reversed(self._started):
            process.__exit__(*exc_info)
        self.pool.shutdown()

    def wait_until_ready(self) -> None:
        """Waits for all processes."""
        for process in self._started:
            process.wait_until_ready()


class Training:
    """A model that workers of a cluster train on servers of it. Other models wait while it has its turn.

    Args:
      cluster: The cluster, whose processes are ready.
      side, job: See `Cluster`. The variables of different models have different names.
      servers, workers: The first so many; None for all.
    """

    def __init__(
        self, cluster: Cluster, side: str, job: Job, servers: int | None = None, workers: int | None = None
    ) -> None:
        self.side = side
        self._servers, self._workers = cluster.servers[:servers], cluster.workers[:workers]
        self._pool = cluster.pool
        fields = {"side": side, "job": dataclasses.asdict(job), "servers": len(self._servers)}
        self._model = json.dumps(fields)
        for worker in self._workers:  # the first one initializes the variables
            self._ask(worker, "start")

    def losses(self, steps: int) -> list[float]:
        """The losses of steps of the first worker, while the others wait."""
        return self._ask(self._workers[0], "losses", steps)

    def held(self, steps: int) -> list[float]:
        """Milliseconds of each step in which ops of groups, which lock the tables, run on the servers.

        The first worker makes the steps, while the others wait.
        """
        return self._ask(self._workers[0], "held", steps)

    def rows(self) -> list[int]:
        """The rows of all tables, by server."""
        return self._ask(self._workers[0], "rows")

    def turn(self, seconds: float) -> Turn:
        """Lets all workers train at the same time, for so many seconds."""
        before, at, sent = self._server_seconds(), time.perf_counter(), _loopback_bytes()
        taken = list(self._pool.map(lambda worker: self._ask(worker, "turn", seconds), self._workers))
        sent, elapsed = _loopback_bytes() - sent, time.perf_counter() - at
        used = [after - was for after, was in zip(self._server_seconds(), before)]
        count = sum(len(one["ms"]) for one in taken)
        return Turn(
            [one["ms"] for one in taken],
            sum(one["cpu"] for one in taken) / count * 1e3,
            [seconds / count * 1e3 for seconds in used],
            sent / count / 1e6,
            count / elapsed,
        )

    def _server_seconds(self) -> list[float]:
        return [float(server.ask("0 seconds -")) for server in self._servers]

    def _ask(self, worker: processes.MeasuringProcess, what: str, argument: float = 0) -> Any:
        return json.loads(worker.ask(f"0 {what} {argument} {self._model}"))


class Place(NamedTuple):
    """What a model needs to know about its task."""

    servers: int
    workers: int
    worker: int  # its number
    scope: Callable[[], Any]  # of its variables and ops, by replica_device_setter


class Model(NamedTuple):
    """What a worker runs.

    Attributes:
      loss, train: The loss and the op of a step.
      feeds: What is fed to steps in turn.
      rows: int64 [servers], the rows of all tables, or None if they are not counted.
    """

    loss: Any
    train: Any
    feeds: Sequence[dict[Any, Any]]
    rows: Any = None


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _loopback_bytes() -> int:
    lines = _NETWORK.read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) for line in lines if line.strip().startswith("lo:")), 0)


class _Worker:
    """The graph and session of a model on a worker."""

    def __init__(self, description: dict[str, Any], server: Any, task: int, text: str) -> None:
        import tensorflow as tf

        from bench.session_sides import session_config

        v1 = tf.compat.v1
        model = json.loads(text)
        worker = f"/job:worker/task:{task}"
        cluster = {**description["cluster"], "ps": description["cluster"]["ps"][: model["servers"]]}
        setter = v1.train.replica_device_setter(cluster=v1.train.ClusterSpec(cluster), worker_device=worker)
        place = Place(model["servers"], len(cluster["worker"]), task, lambda: v1.device(setter))
        config = session_config(len(os.sched_getaffinity(0)))
        # A worker does not wait for other workers.
        config.device_filters.extend(["/job:ps", worker])
        with tf.Graph().as_default() as graph:
            build = importlib.import_module(description["module"]).build
            self._model: Model = build(model["side"], Job(**model["job"]), place)
            self._session = v1.Session(server.target, graph, config)
            if task == 0:
                self._session.run(v1.global_variables_initializer())
        self._steps = 0

    def start(self, _: str) -> None:
        """Nothing: it has been made."""

    def losses(self, steps: str) -> list[float]:
        return [float(self._step()) for _ in range(int(steps))]

    def held(self, steps: str) -> list[float]:
        import tensorflow as tf

        v1 = tf.compat.v1
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        taken = []
        for _ in range(int(steps)):
            metadata = v1.RunMetadata()
            self._session.run(self._model.train, self._next_feed(), options, metadata)
            ops = (
                op
                for device in metadata.step_stats.dev_stats
                if "/job:ps" in device.device
                for op in device.node_stats
            )
            taken.append(sum(op.all_end_rel_micros for op in ops if "SokGroup" in op.node_name) * 1e-3)
        return taken

    def rows(self, _: str) -> list[int]:
        return [] if self._model.rows is None else self._session.run(self._model.rows).tolist()

    def turn(self, seconds: str) -> dict[str, object]:
        cpu, taken = time.process_time(), []
        at = time.perf_counter()
        end = at + float(seconds)
        while at < end:
            self._step()
            now = time.perf_counter()
            taken.append((now - at) * 1e3)
            at = now
        return {"ms": taken, "cpu": time.process_time() - cpu}

    def _step(self) -> float:
        return self._session.run([self._model.loss, self._model.train], self._next_feed())[0]

    def _next_feed(self) -> dict[Any, Any]:
        self._steps += 1
        return self._model.feeds[self._steps % len(self._model.feeds)]


def _main(text: str, name: str, task: int) -> None:
    def make() -> Callable[[str, str], object]:
        import tensorflow as tf

        from bench.session_sides import session_config

        description = json.loads(text)
        for side in description["sides"]:
            importlib.import_module(description["module"]).load(side)
        config = session_config(len(os.sched_getaffinity(0)))
        server = tf.compat.v1.train.Server(description["cluster"], name, task, config=config)
        if name == "ps":
            return lambda what, argument: time.process_time()
        tf.compat.v1.disable_eager_execution()
        model = functools.lru_cache(maxsize=None)(functools.partial(_Worker, description, server, task))

        def answer(what: str, argument: str) -> str:
            number, _, text = argument.partition(" ")
            return json.dumps(getattr(model(text), what)(number))

        return answer

    processes.answer_lines(make)
    os._exit(0)  # TensorFlow's servers cannot be stopped


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
