"""What a step costs a parameter server, by a model of few constants, and how many servers jobs need by it.

The constants are measured with one server and one worker, and checked with more. Steps are requests and
pushes alone: gradients are given, and no variable but the tables is on servers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import flags, jobs, plots, processes, report, server_costs
from bench.report import Result
from bench.server_costs import Costs, Load, Server
from bench.servers import Cluster, Model, Place, Training, Turn

FLAGS = {
    "servers": flags.Flag(flags.number(), "numbers of servers to check the model with", (1, 2, 3, 4)),
    "workers": flags.Flag(flags.number(), "numbers of workers to check the model with", (1, 2, 4, 8)),
    "batch": flags.Flag(flags.number(), "samples of a worker's step", 2048),
    **dict(features=26, dim=16, rows=2_600_000, zipf=1.05, optimizer="adagrad"),
    **dict(batches=10, rounds=5, seed=1),
    "turn_ms": flags.Flag(flags.number(float, 1e-9), "length of a turn in a round", 500.0),
    "jobs": flags.Flag(flags.number(), "workers of the jobs whose servers are counted", (10, 100, 1000)),
    "steps": flags.Flag(flags.number(float, 1e-9), "steps a second of each of their workers", (10.0, 2.5)),
    "cores": flags.Flag(flags.number(), "cores of each of their servers", 8),
    "gbit": flags.Flag(flags.number(float, 1e-9), "Gbit/s of their servers' links, in each direction", 10.0),
}
TOGETHER = ("servers", "workers", "jobs", "steps")
_SIDE = "sok"
_HELD_STEPS = 9
_CHECK, _COSTS, _JOB = "a step on a server", "costs", "servers of a job"


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures the costs, checks them, and counts servers."""
    job = jobs.Job.of(point)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        most = (max(point.servers), max(point.workers))
        cluster = stack.enter_context(Cluster(__name__, [_SIDE], *most, folder))
        cluster.wait_until_ready()
        fitted = [_Measured(cluster, folder / str(n), one) for n, one in enumerate(_to_fit(job))]
        checked = [
            _Measured(cluster, folder / f"{servers}", job, servers, workers)
            for servers in point.servers
            for workers in point.workers
        ]
        for number in range(point.rounds + 1):  # the first round warms up
            processes.say(f"round {number} of {point.rounds}")
            for one in (*fitted, *checked):
                one.take(point.turn_ms * 1e-3, number > 0)
        held = [min(one.training.held(_HELD_STEPS)) for one in fitted]
    loads = [one.load for one in fitted]
    processor = Costs.fitted(loads, [one.milliseconds for one in fitted])
    locked = Costs.fitted(loads, held)
    question = {name: getattr(point, name) for name in ("features", "batch", "dim", "optimizer")}
    results = [one.result(question, processor) for one in checked]
    for what, costs in (("processor", processor), ("locks", locked)):
        per_step = dataclasses.asdict(costs)
        results.append(Result({**question, "what": _COSTS, "of": what}, {}, "", per_step))
    unique = jobs.unique_per_step(job.make_batches())
    server = Server(point.cores, point.gbit * 1e9)
    for steps in point.steps:
        for workers in point.jobs:

            def used(servers: int, rate: float = workers * steps) -> dict[str, float]:
                return server_costs.usage(_load(job, unique, servers), rate, processor, locked, server)

            number, most = server_costs.servers_needed(used)
            asked = {**question, "what": _JOB, "workers": workers, "steps": steps, "most": most}
            asked.update(cores=point.cores, gbit=point.gbit)
            results.append(
                Result(asked, {}, "", {"servers": number or 0, **used(number or server_costs.MOST_SERVERS)})
            )
    return results


def _to_fit(job: jobs.Job) -> list[jobs.Job]:
    """The job, and others that differ in the numbers of tables, ids, and floats of a row."""
    few = max(1, job.features // 6)
    shapes = [
        (job.features, job.batch, job.dim),
        (job.features, job.batch // 4, job.dim),
        (job.features, job.batch // 16, job.dim),
        (job.features, job.batch, 4 * job.dim),
        (few, job.batch, job.dim),
        (few, job.batch // 16, job.dim),
        (2 * job.features, job.batch // 2, job.dim),
    ]
    return [
        dataclasses.replace(job, features=features, batch=max(1, batch), dim=dim)
        for features, batch, dim in shapes
    ]


class _Measured:
    """A job on servers and workers of the cluster, and its turns."""

    def __init__(
        self, cluster: Cluster, ids: pathlib.Path, job: jobs.Job, servers: int = 1, workers: int = 1
    ) -> None:
        batches = job.make_batches()
        self.load = _load(job, jobs.unique_per_step(batches), servers)
        job = job.write_ids(batches, ids)
        self.training = Training(cluster, _SIDE, job, servers, workers)
        self.training.losses(job.batches)  # makes all rows
        self._counts = (servers, workers)
        self._turns: list[Turn] = []

    def take(self, seconds: float, counts: bool) -> None:
        turn = self.training.turn(seconds)
        if counts:
            self._turns.append(turn)

    @property
    def milliseconds(self) -> float:
        """Processor time of a step on a server."""
        return statistics.median(statistics.mean(turn.server_cpus) for turn in self._turns)

    def result(self, question: dict[str, Any], costs: Costs) -> Result:
        servers, workers = self._counts
        counts = {
            "ms measured": self.milliseconds,
            "ms predicted": costs.of(self.load),
            "MB measured": statistics.median(turn.megabytes for turn in self._turns),
            "MB predicted": servers * (self.load.bytes_in + self.load.bytes_out) / 1e6,
        }
        return Result({**question, "what": _CHECK, "servers": servers, "workers": workers}, {}, "", counts)


def _load(job: jobs.Job, unique: float, servers: int) -> Load:
    """What a step that has so many distinct ids asks of each of so many servers, on average."""
    return Load(job.features, job.dim, unique / servers)


def build(side: str, job: jobs.Job, place: Place) -> Model:
    """A group of lookups, and a step with given gradients. Workers begin with different batches."""
    import tensorflow as tf

    import sparse_operation_kit as sok
    from bench.session_sides import make_optimizer
    from sparse_operation_kit.lookup import group

    batches = job.read_ids()
    first = place.worker * len(batches) // place.workers
    name = f"{job.features}_{job.dim}_{job.batch}_{place.servers}"
    with place.scope():
        sok.Init(global_batch_size=job.batch, seed=job.seed)
        ids = tf.compat.v1.placeholder(tf.int64, [job.features, job.batch])
        tables = [sok.EmbeddingVariable(f"table_{name}_{n}", job.dim) for n in range(job.features)]
        lookups = [group.DenseLookup(*pair) for pair in zip(tables, tf.unstack(ids))]
        (rows,) = group.lookup_group(lookups, side_by_side=True)
        gradients = tf.gradients(rows, tables, [tf.fill(tf.shape(rows), 1e-3)])
        train = make_optimizer(job.optimizer).apply_gradients(zip(gradients, tables))
    feeds = [{ids: np.stack([bags.ids for bags in batch])} for batch in batches[first:] + batches[:first]]
    return Model(tf.constant(0.0), train, feeds)


def load(side: str) -> None:
    """Loads the ops that a server needs."""
    import sparse_operation_kit  # noqa: F401


def draw(path: pathlib.Path, results: Sequence[Result]) -> None:
    """Draws the measured and predicted milliseconds over workers, in a panel for each number of servers."""
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for result in results:
        if result.question["what"] == _CHECK:
            panel = panels.setdefault(f"servers: {result.question['servers']}", {})
            for name in ("measured", "predicted"):
                panel.setdefault(name, {})[result.question["workers"]] = result.counts[f"ms {name}"]
    plots.lines(path, "Processor time of a server for a worker's step", panels, "workers", "ms")


def table(results: Sequence[Result]) -> str:
    """The costs, predictions beside measurements, and the servers of jobs."""
    costs = [result for result in results if result.question["what"] == _COSTS]
    of_steps = [
        [f"{result.question[name]}" for name in ("servers", "workers")]
        + [f"{result.counts[name]:.2f}" for name in ("ms measured", "ms predicted")]
        + [f"{result.counts['ms predicted'] / result.counts['ms measured']:.2f}"]
        + [f"{result.counts[name]:.2f}" for name in ("MB measured", "MB predicted")]
        for result in results
        if result.question["what"] == _CHECK
    ]
    return "\n\n".join(
        [
            report.markdown(
                ["of", "a message, us", "a table, us", "an id, ns", "a byte, ns"],
                [
                    [
                        str(result.question["of"]),
                        *(f"{result.counts[name] * 1e3:.2f}" for name in ("message", "table")),
                        *(f"{result.counts[name] * 1e6:.3g}" for name in ("id", "byte")),
                    ]
                    for result in costs
                ],
            ),
            report.markdown(
                ["servers", "workers", "ms measured", "ms predicted", "ratio", "MB measured", "MB predicted"],
                of_steps,
            ),
            report.markdown(
                ["workers", "steps/s of each", "servers", "uses most", "network", "processor", "locks"],
                [
                    [
                        *(report.text_of(result.question[name]) for name in ("workers", "steps")),
                        f"{result.counts['servers'] or 'none is enough'}",
                        result.question["most"],
                        *(f"{result.counts[name]:.0%}" for name in ("network", "processor", "locks")),
                    ]
                    for result in results
                    if result.question["what"] == _JOB
                ],
            ),
        ]
    )
