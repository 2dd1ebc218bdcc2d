"""Training steps of workers whose tables are on parameter servers, compared with TensorFlow's variables.

All processes are on this machine. Workers train at the same time and asynchronously; sides take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import statistics
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import flags, jobs, processes, report
from bench.report import Goal, Result
from bench.servers import Cluster, Model, Place, Turn
from bench.timing import Timing

OURS, THEIRS, NOTHING = "sok", "tensorflow", "no tables"
_SIDES = (OURS, THEIRS, NOTHING)
FLAGS = {
    "servers": flags.Flag(flags.number(), "numbers of parameter servers", (2,)),
    "workers": flags.Flag(flags.number(), "numbers of workers", (2,)),
    "batch": flags.Flag(flags.number(), "samples of a worker's step", (2048,)),
    **dict(features=(26,), dim=(16,), rows=2_600_000, zipf=1.05, optimizer="adagrad"),
    **dict(batches=20, rounds=7, seed=1),
    "turn_ms": flags.Flag(flags.number(float, 1e-9), "length of a side's turn in a round", 1000.0),
    "sides": flags.Flag(flags.one_of("side", _SIDES), "some of " + ",".join(_SIDES), _SIDES),
}
TOGETHER = ("sides",)
_TOLERANCE = 1e-4  # between the losses of both sides
_HIDDEN = 64  # units of the model's hidden layer
_ROW = 0.02  # all columns of all rows, at first
_STEP, _SERVER = "step", "a server's processor"


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one set of tables, servers and workers."""
    job = jobs.Job.of(point, batches=point.batches * point.workers)
    batches = job.make_batches()
    counts: dict[str, float] = {
        "ids": jobs.ids_per_step(batches),
        "unique": jobs.unique_per_step(batches),
    }
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        job = job.write_ids(batches, folder / "ids")
        clusters = [
            stack.enter_context(Cluster(__name__, side, job, point.servers, point.workers, folder))
            for side in point.sides
        ]
        for cluster in clusters:
            cluster.initialize()
        _check(clusters)
        processes.say(f"{point.servers} servers, {point.workers} workers: losses agree; measuring")
        turns: dict[str, list[Turn]] = {cluster.side: [] for cluster in clusters}
        for number in range(point.rounds + 1):
            for cluster in clusters:
                turn = cluster.turn(point.turn_ms * 1e-3)
                if number > 0:  # the first round warms up
                    turns[cluster.side].append(turn)
        for cluster in clusters:
            counts.update(_counts_of(cluster.side, turns[cluster.side], point.batch, cluster.rows()))
    question = {
        name: getattr(point, name) for name in ("servers", "workers", "features", "batch", "dim", "optimizer")
    }
    is_goal = THEIRS in turns and OURS in turns
    ours = OURS if OURS in turns else next(iter(turns))
    return [
        Result(
            {**question, "what": what},
            {side: _timing(what, taken) for side, taken in turns.items()},
            ours,
            counts if what == _STEP else {},
            goals=(Goal(THEIRS, least),) if is_goal else (),
        )
        for what, least in ((_STEP, 1.5), (_SERVER, 2.0))
    ]


def _check(clusters: Sequence[Cluster]) -> None:
    """Checks that the first worker's losses agree. Without tables they are others, from the first step on."""
    losses = {cluster.side: cluster.losses(4) for cluster in clusters}
    losses.pop(NOTHING, None)
    for side, values in losses.items():
        expected = next(iter(losses.values()))
        np.testing.assert_allclose(values, expected, rtol=0, atol=_TOLERANCE, err_msg=f"losses of {side}")


def _timing(what: str, turns: Sequence[Turn]) -> Timing:
    """Of a step: its medians in turns, and its worker's processor time. Of a server: its processor time."""
    if what == _SERVER:
        used = [turn.server_cpu for turn in turns]
        return Timing(statistics.median(used), min(used), statistics.median(used))
    medians = [statistics.median(ms for steps in turn.steps for ms in steps) for turn in turns]
    cpu = statistics.median(turn.worker_cpu for turn in turns)
    return Timing(statistics.median(medians), min(medians), cpu)


def _counts_of(side: str, turns: Sequence[Turn], batch: int, rows: Sequence[int]) -> dict[str, float]:
    counts = {}
    for worker in range(len(turns[0].steps)):
        steps = [ms for turn in turns for ms in turn.steps[worker]]
        counts[f"{side}: worker {worker}, median"] = statistics.median(steps)
        counts[f"{side}: worker {worker}, p90"] = float(np.percentile(steps, 90))
    counts[f"{side}: MB"] = statistics.median(turn.megabytes for turn in turns)
    counts[f"{side}: samples/s"] = batch * statistics.median(turn.rate for turn in turns)
    counts.update({f"{side}: rows of server {server}": float(count) for server, count in enumerate(rows)})
    return counts


def table(results: Sequence[Result]) -> str:
    """A line for each side of each result; what is the same in all stands above."""
    steps, servers = results[0::2], results[1::2]
    keys = [key for key in steps[0].question if key != "what"]
    varied = [key for key in keys if len({result.question[key] for result in steps}) > 1]
    lines = []
    for step, server in zip(steps, servers):
        for side, timing in step.timings.items():
            lines.append(
                [
                    *(report.text_of(step.question[key]) for key in varied),
                    side,
                    f"{timing.median:.1f} ({timing.minimum:.1f})",
                    "; ".join(_of_workers(step, side)),
                    f"{timing.median_cpu:.1f}",
                    f"{server.timings[side].median:.2f}",
                    f"{step.counts[f'{side}: MB']:.2f}",
                    f"{step.counts[f'{side}: samples/s']:.0f}",
                    f"{step.ratio(side):.2f}",
                    f"{server.ratio(side):.2f}",
                    ", ".join(f"{count:.0f}" for count in _values(step, f"{side}: rows of server ")),
                ]
            )
    head = [*varied, "who", "ms (min)", "each worker: median, p90", "cpu ms", "a server's cpu ms"]
    head += ["MB", "samples/s", "/ours", "server's cpu /ours", "rows by server"]
    title = ", ".join(f"{key} {report.text_of(steps[0].question[key])}" for key in keys if key not in varied)
    return f"{title}\n\n{report.markdown(head, lines)}"


def _of_workers(step: Result, side: str) -> list[str]:
    values = _values(step, f"{side}: worker ")
    return [f"{median:.1f}, {p90:.1f}" for median, p90 in zip(values[0::2], values[1::2])]


def _values(step: Result, prefix: str) -> list[float]:
    return [value for name, value in step.counts.items() if name.startswith(prefix)]


def build(side: str, job: jobs.Job, place: Place) -> Model:
    """The model of a worker: rows of all features, a hidden layer, and a logit."""
    import tensorflow as tf

    from bench.session_sides import make_optimizer

    v1 = tf.compat.v1
    mine = job.read_ids()[place.worker :: place.workers]
    with place.scope():
        step = v1.train.get_or_create_global_step()
        ids = v1.placeholder(tf.int64, [job.features, job.batch])
        labels = v1.placeholder(tf.float32, [job.batch])
        rows, counts = _look_up(side, job, tf.unstack(ids), place.servers)
        initializer = v1.random_normal_initializer(stddev=0.05, seed=1)
        sizes = [job.features * job.dim, _HIDDEN, 1]
        weights = [
            v1.get_variable(f"weights_{n}", sizes[n : n + 2], initializer=initializer, use_resource=True)
            for n in range(2)
        ]
        hidden = tf.nn.relu(tf.matmul(tf.concat(rows, axis=1), weights[0]))
        logits = tf.matmul(hidden, weights[1])[:, 0]
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        train = make_optimizer(job.optimizer).minimize(loss, global_step=step)
    rng = np.random.default_rng(job.seed)
    feeds = [
        {
            ids: np.stack([bags.ids for bags in batch]),
            labels: rng.integers(0, 2, job.batch).astype(np.float32),
        }
        for batch in mine
    ]
    return Model(loss, train, feeds, counts)


def _look_up(side: str, job: jobs.Job, ids: Sequence, servers: int) -> tuple[list, Any]:
    """Returns the rows of each feature's ids, float32 [batch, dim], and the number of rows by server."""
    import tensorflow as tf

    v1 = tf.compat.v1
    if side == NOTHING:
        return [tf.ones([job.batch, job.dim])] * job.features, None
    if side == OURS:
        import sparse_operation_kit as sok
        from sparse_operation_kit import native
        from sparse_operation_kit.lookup import group

        sok.Init(global_batch_size=job.batch, seed=job.seed)
        tables = [
            sok.EmbeddingVariable(f"table_{feature}", job.dim, initializer=_ROW)
            for feature in range(job.features)
        ]
        rows = group.lookup_group([group.DenseLookup(*pair) for pair in zip(tables, ids)])
        sizes = [tf.stack(table.of_parts(native.ops.sok_table_size)) for table in tables]
        return rows, tf.add_n(sizes)
    one_each = tf.stack([tf.range(job.batch, dtype=tf.int64), tf.zeros([job.batch], tf.int64)], axis=1)
    rows = []
    for feature, of_feature in enumerate(ids):
        variable = v1.get_variable(
            f"variable_{feature}",
            [job.rows, job.dim],
            initializer=v1.constant_initializer(_ROW),
            partitioner=v1.fixed_size_partitioner(servers),
            use_resource=True,
        )
        bags = tf.SparseTensor(one_each, of_feature, [job.batch, 1])
        # It sends distinct ids, and so fewer rows than `embedding_lookup`.
        rows.append(tf.nn.embedding_lookup_sparse(variable, bags, None, combiner="sum"))
    return rows, None
