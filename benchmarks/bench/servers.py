"""Starts a cluster of parameter servers and workers on this machine, and is the program of each task.

Each side of a comparison has a cluster of its own, whose processes wait while others have their turn.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import importlib
import json
import os
import pathlib
import socket
import statistics
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
      worker_cpu, server_cpu: Processor milliseconds of a step: of its worker, and of each server.
      megabytes: Sent through the loopback device for a step, by all programs of the machine.
      rate: Steps per second, of all workers together.
    """

    steps: list[list[float]]
    worker_cpu: float
    server_cpu: float
    megabytes: float
    rate: float


class Cluster:
    """The running processes of a side. A context manager: leaving it ends them.

    Args:
      module: The module with the model: `module.build(side, job, place)` returns a `Model`.
      side: Which of its models. `module.load(side)` loads the ops that its servers need.
      job: Tables, and the ids of all workers.
      servers, workers: How many.
      folder: For the processes' logs.
      python: The interpreter of the processes, by default this one.
      variables: Their environment variables, by default those of `processes.environment`.
    """

    def __init__(
        self,
        module: str,
        side: str,
        job: Job,
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
        self.side = side
        self._started: list[processes.MeasuringProcess] = []
        description = json.dumps(
            {"module": module, "side": side, "job": dataclasses.asdict(job), "cluster": cluster}
        )
        for name, addresses in cluster.items():
            for task in range(len(addresses)):
                command = [str(python), "-m", "bench.servers", description, name, str(task)]
                log = folder / f"{side}_{name}_{task}.log"
                who = f"{side}, {name} {task}"
                process = processes.MeasuringProcess(
                    who, command, variables or processes.environment(), log
                )
                self._started.append(process)
        self.servers, self.workers = self._started[:servers], self._started[servers:]
        self._pool = concurrent.futures.ThreadPoolExecutor(servers + workers)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        # Workers first: they wait for servers that have ended.
        for process in reversed(self._started):
            process.__exit__(*exc_info)
        self._pool.shutdown()

    def initialize(self) -> None:
        """Waits for the processes. Then the first worker initializes the variables."""
        for process in self._started:
            process.wait_until_ready()
        for worker in self.workers:
            worker.ask("0 start -")

    def losses(self, steps: int) -> list[float]:
        """The losses of steps of the first worker, while the others wait."""
        return json.loads(self.workers[0].ask(f"0 losses {steps}"))

    def rows(self) -> list[int]:
        """The rows of all tables, by server."""
        return json.loads(self.workers[0].ask("0 rows -"))

    def turn(self, seconds: float) -> Turn:
        """Lets all workers train at the same time, for so many seconds."""
        before, at, sent = self._server_seconds(), time.perf_counter(), _loopback_bytes()
        answers = list(self._pool.map(lambda worker: worker.ask(f"0 turn {seconds}"), self.workers))
        sent, elapsed = _loopback_bytes() - sent, time.perf_counter() - at
        used = [after - was for after, was in zip(self._server_seconds(), before)]
        taken = [json.loads(answer) for answer in answers]
        count = sum(len(one["ms"]) for one in taken)
        return Turn(
            [one["ms"] for one in taken],
            sum(one["cpu"] for one in taken) / count * 1e3,
            statistics.mean(used) / count * 1e3,
            sent / count / 1e6,
            count / elapsed,
        )

    def _server_seconds(self) -> list[float]:
        return [float(server.ask("0 seconds -")) for server in self.servers]


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
    """A worker's graph and session."""

    def __init__(self, description: dict[str, Any], server: Any, task: int) -> None:
        import tensorflow as tf

        from bench.session_sides import session_config

        v1 = tf.compat.v1
        worker = f"/job:worker/task:{task}"
        cluster = v1.train.ClusterSpec(description["cluster"])
        setter = v1.train.replica_device_setter(cluster=cluster, worker_device=worker)
        counts = [len(description["cluster"][job]) for job in ("ps", "worker")]
        place = Place(*counts, task, lambda: v1.device(setter))
        build = importlib.import_module(description["module"]).build
        self._model: Model = build(description["side"], Job(**description["job"]), place)
        self._initializer = v1.global_variables_initializer() if task == 0 else None
        config = session_config(len(os.sched_getaffinity(0)))
        # A worker does not wait for other workers.
        config.device_filters.extend(["/job:ps", worker])
        self._session = v1.Session(server.target, config=config)
        self._steps = 0

    def answer(self, what: str, argument: str) -> object:
        return json.dumps(getattr(self, f"_{what}")(argument))

    def _start(self, _: str) -> None:
        if self._initializer is not None:
            self._session.run(self._initializer)

    def _step(self) -> float:
        model, self._steps = self._model, self._steps + 1
        feed = model.feeds[self._steps % len(model.feeds)]
        return self._session.run([model.loss, model.train], feed)[0]

    def _losses(self, steps: str) -> list[float]:
        return [float(self._step()) for _ in range(int(steps))]

    def _rows(self, _: str) -> list[int]:
        return [] if self._model.rows is None else self._session.run(self._model.rows).tolist()

    def _turn(self, seconds: str) -> dict[str, object]:
        cpu, taken = time.process_time(), []
        at = time.perf_counter()
        end = at + float(seconds)
        while at < end:
            self._step()
            now = time.perf_counter()
            taken.append((now - at) * 1e3)
            at = now
        return {"ms": taken, "cpu": time.process_time() - cpu}


def _main(text: str, name: str, task: int) -> None:
    def make() -> Callable[[str, str], object]:
        import tensorflow as tf

        from bench.session_sides import session_config

        description = json.loads(text)
        importlib.import_module(description["module"]).load(description["side"])
        config = session_config(len(os.sched_getaffinity(0)))
        server = tf.compat.v1.train.Server(description["cluster"], name, task, config=config)
        if name == "ps":
            return lambda what, argument: time.process_time()
        tf.compat.v1.disable_eager_execution()
        return _Worker(description, server, task).answer

    processes.answer_lines(make)
    os._exit(0)  # TensorFlow's servers cannot be stopped


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
