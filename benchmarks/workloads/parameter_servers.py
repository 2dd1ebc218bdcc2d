"""Training steps of workers with tables on parameter servers, compared with other tables and with ranks.

All processes are on this machine. Workers train at the same time and asynchronously; sides take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import flags, jobs, processes, ranks, report, sides, timing
from bench.report import Goal, Result
from bench.servers import Cluster, Model, Place, Training, Turn
from bench.timing import Timing

OURS, THEIRS, NOTHING, TFRA, RANKS = "sok", "tensorflow", "no tables", "tfra", "ranks"
_SIDES = (OURS, THEIRS, NOTHING, TFRA, RANKS)
_CHECKED = (OURS, THEIRS, TFRA)
FLAGS = {
    "servers": flags.Flag(flags.number(), "numbers of parameter servers", (2,)),
    "workers": flags.Flag(flags.number(), "numbers of workers", (2,)),
    "batch": flags.Flag(flags.number(), "samples of a worker's step", (2048,)),
    **dict(features=(26,), dim=(16,), rows=2_600_000, zipf=1.05, optimizer="adagrad"),
    **dict(batches=20, rounds=7, seed=1),
    "turn_ms": flags.Flag(flags.number(float, 1e-9), "length of a side's turn in a round", 1000.0),
    "sides": flags.Flag(flags.one_of("side", _SIDES), "some of " + ",".join(_SIDES), _SIDES[:3]),
    "environments": flags.Flag(pathlib.Path, "folder of the peers' environments", sides.default_folder()),
}
TOGETHER = ("sides",)
_TOLERANCE = 1e-4  # between the losses of all sides
_HIDDEN = 64  # units of the model's hidden layer
_ROW = 0.02  # all columns of all rows, at first
_STEP, _SERVER = "step", "a server's processor"
# At least, of the time of TensorFlow's step and of a server's processor time.
_GOALS = (1.5, 2.0)


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one set of tables, servers and workers."""
    # Ranks are as many as servers and workers.
    job = jobs.Job.of(point, batches=point.batches * (point.servers + point.workers))
    batches = job.make_batches()
    counts: dict[str, float] = {
        "ids": jobs.ids_per_step(batches),
        "unique": jobs.unique_per_step(batches),
    }
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        job = job.write_ids(batches, folder / "ids")
        trainings = {
            training.side: training
            for cluster in _clusters(job, point, folder, stack)
            for training in [Training(cluster, side, job) for side in cluster.sides]
        }
        _check(trainings)
        processes.say(f"{point.servers} servers, {point.workers} workers: losses agree; measuring")
        take: dict[str, Callable[[], Turn]] = {
            side: lambda training=training: training.turn(point.turn_ms * 1e-3)
            for side, training in trainings.items()
        }
        if RANKS in point.sides:
            take[RANKS] = lambda: _turn_of_ranks(point, job)
        turns: dict[str, list[Turn]] = {side: [] for side in take}
        for number in range(point.rounds + 1):
            for side, one in take.items():
                turn = one() if number > 0 or side in trainings else None
                if number > 0:  # the first round warms up
                    turns[side].append(turn)
        for side, taken in turns.items():
            rows = trainings[side].rows() if side in trainings else []
            counts.update(_counts_of(side, taken, point, rows))
    question = {
        name: getattr(point, name) for name in ("servers", "workers", "features", "batch", "dim", "optimizer")
    }
    return [
        Result(
            {**question, "what": what},
            {side: _timing(what, taken) for side, taken in turns.items() if what == _STEP or side != RANKS},
            OURS if OURS in turns else next(iter(turns)),
            counts if what == _STEP else {},
            goals=(Goal(THEIRS, least),) if {THEIRS, OURS} <= turns.keys() else (),
        )
        for what, least in zip((_STEP, _SERVER), _GOALS)
    ]


def _clusters(
    job: jobs.Job, point: argparse.Namespace, folder: pathlib.Path, stack: contextlib.ExitStack
) -> list[Cluster]:
    """Starts the clusters: one for the sides that have this process's Python, and one for tfra."""
    here = [side for side in point.sides if side not in (TFRA, RANKS)]
    counts = (point.servers, point.workers, folder)
    clusters = [stack.enter_context(Cluster(__name__, here, *counts))] if here else []
    if TFRA in point.sides and sides.can_run(TFRA, job, point.environments):
        variables = processes.environment(PYTHONPATH=str(processes.BENCHMARKS), TF_USE_LEGACY_KERAS="1")
        python = sides.interpreter(TFRA, point.environments)
        clusters.append(stack.enter_context(Cluster(__name__, [TFRA], *counts, python, variables)))
    for cluster in clusters:
        cluster.wait_until_ready()
    return clusters


def _turn_of_ranks(point: argparse.Namespace, job: jobs.Job) -> Turn:
    size = point.servers + point.workers
    launch = argparse.Namespace(
        **{**vars(point), **dict(ranks=size, transport="mpi", cycle_time=1.0, threads=0, calls=20)},
    )
    launch.batch, launch.ids, launch.batches = point.batch * size, job.ids, job.batches
    ((name, one),) = ranks.launch("parameter_servers", launch)[0].timings.items()
    return Turn([[one.median]] * size, one.median_cpu, [], 0.0, size * 1e3 / one.median)


def measure_rank(rank: ranks.Rank) -> list[Result]:
    """Measures steps of the same model on each rank, after one on each batch."""
    import tensorflow as tf

    import sparse_operation_kit as sok

    point = rank.point
    job = jobs.Job.of(point, batch=point.batch // rank.size)
    model = build(RANKS, job, Place(0, rank.size, rank.number, contextlib.nullcontext))
    for op in (tf.compat.v1.global_variables_initializer(), sok.broadcast_global_variables()):
        rank.session.run(op)
    feeds = itertools.cycle(model.feeds)

    def step() -> None:
        rank.session.run([model.loss, model.train], next(feeds))

    for _ in model.feeds:
        step()
    return [Result({}, {RANKS: timing.measure({RANKS: timing.contender(step)}, 1, calls=point.calls)[RANKS]})]


def _check(trainings: Mapping[str, Training]) -> None:
    """Checks that the first worker's losses agree. Without tables they are others, from the first step on."""
    losses = {side: training.losses(4) for side, training in trainings.items()}
    for side in _CHECKED:
        if side in losses and OURS in losses:
            np.testing.assert_allclose(
                losses[side], losses[OURS], rtol=0, atol=_TOLERANCE, err_msg=f"losses of {side}"
            )


def _timing(what: str, turns: Sequence[Turn]) -> Timing:
    """Of a step: its medians in turns, and its worker's processor time. Of a server: its processor time."""
    if what == _SERVER:
        used = [statistics.mean(turn.server_cpus) for turn in turns]
        return Timing(statistics.median(used), min(used), statistics.median(used))
    medians = [statistics.median(ms for steps in turn.steps for ms in steps) for turn in turns]
    cpu = statistics.median(turn.worker_cpu for turn in turns)
    return Timing(statistics.median(medians), min(medians), cpu)


def _counts_of(
    side: str, turns: Sequence[Turn], point: argparse.Namespace, rows: Sequence[int]
) -> dict[str, float]:
    counts = {}
    for worker in range(len(turns[0].steps)):
        steps = [ms for turn in turns for ms in turn.steps[worker]]
        counts[f"{side}: worker {worker}, median"] = statistics.median(steps)
        counts[f"{side}: worker {worker}, p90"] = float(np.percentile(steps, 90))
    counts[f"{side}: MB"] = statistics.median(turn.megabytes for turn in turns)
    counts[f"{side}: samples/s"] = point.batch * statistics.median(turn.rate for turn in turns)
    counts[f"{side}: all processors"] = statistics.median(
        turn.worker_cpu + sum(turn.server_cpus) for turn in turns
    )
    for server in range(len(turns[0].server_cpus)):
        counts[f"{side}: ms of server {server}"] = statistics.median(
            turn.server_cpus[server] for turn in turns
        )
    counts.update({f"{side}: rows of server {server}": float(count) for server, count in enumerate(rows)})
    return counts


def table(results: Sequence[Result]) -> str:
    """A line for each side of each result; what is the same in all stands above."""
    steps, servers = results[0::2], results[1::2]
    varied = report.varied_keys(steps)
    lines = []
    for step, server in zip(steps, servers):
        all_cpu = {side: step.counts[f"{side}: all processors"] for side in step.timings}
        for side, one in step.timings.items():
            on_servers = side in server.timings
            lines.append(
                [
                    *(report.text_of(step.question[key]) for key in varied),
                    side,
                    f"{one.median:.1f} ({one.minimum:.1f})",
                    "; ".join(_of_workers(step, side)),
                    f"{one.median_cpu:.1f}",
                    ", ".join(f"{ms:.2f}" for ms in _values(step, f"{side}: ms of server ")),
                    f"{all_cpu[side]:.1f}",
                    f"{step.counts[f'{side}: MB']:.2f}" if on_servers else "",
                    f"{step.counts[f'{side}: samples/s']:.0f}",
                    f"{step.ratio(side):.2f}",
                    f"{server.ratio(side):.2f}" if on_servers else "",
                    f"{all_cpu[side] / all_cpu[step.ours]:.2f}",
                    ", ".join(f"{count:.0f}" for count in _values(step, f"{side}: rows of server ")),
                ]
            )
    head = [*varied, "who", "ms (min)", "each worker: median, p90", "cpu ms", "cpu ms of servers"]
    head += ["cpu ms of all", "MB", "samples/s", "/ours", "servers' cpu /ours", "all cpu /ours"]
    head.append("rows by server")
    return f"{report.title(steps[0], [*varied, 'what'])}\n\n{report.markdown(head, lines)}"


def _of_workers(step: Result, side: str) -> list[str]:
    values = _values(step, f"{side}: worker ")
    return [f"{median:.1f}, {p90:.1f}" for median, p90 in zip(values[0::2], values[1::2])]


def _values(step: Result, prefix: str) -> list[float]:
    return [value for name, value in step.counts.items() if name.startswith(prefix)]


def load(side: str) -> None:
    """Loads the ops that a server of this side needs."""
    libraries = {OURS: "sparse_operation_kit", TFRA: "bench.tfra_side"}
    if side in libraries:
        importlib.import_module(libraries[side])


def build(side: str, job: jobs.Job, place: Place) -> Model:
    """The model of a worker or rank: rows of all features, a hidden layer, and a logit."""
    import tensorflow as tf

    v1 = tf.compat.v1
    mine = job.read_ids()[place.worker :: place.workers]
    # Sides with the same servers have variables of their own.
    with place.scope(), v1.variable_scope(side.replace(" ", "_")):
        step = v1.get_variable("step", [], tf.int64, v1.zeros_initializer, trainable=False)
        ids = v1.placeholder(tf.int64, [job.features, job.batch])
        labels = v1.placeholder(tf.float32, [job.batch])
        rows, counts = _look_up(side, job, tf.unstack(ids), place.servers)
        initializer = v1.random_normal_initializer(stddev=0.05, seed=1)
        sizes = [job.features * job.dim, _HIDDEN, 1]
        weights = [
            v1.get_variable(f"weights_{n}", sizes[n : n + 2], initializer=initializer, use_resource=True)
            for n in range(2)
        ]
        hidden = tf.nn.relu(tf.matmul(rows, weights[0]))
        logits = tf.matmul(hidden, weights[1])[:, 0]
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        train = _make_optimizer(side, job.optimizer).minimize(loss, global_step=step)
    rng = np.random.default_rng(job.seed)
    feeds = [
        {
            ids: np.stack([bags.ids for bags in batch]),
            labels: rng.integers(0, 2, job.batch).astype(np.float32),
        }
        for batch in mine
    ]
    return Model(loss, train, feeds, counts)


def _make_optimizer(side: str, name: str) -> Any:
    if side == TFRA:
        from bench import tfra_side

        return tfra_side.make_optimizer(name)
    from bench.session_sides import make_optimizer

    if side != RANKS:
        return make_optimizer(name)
    import sparse_operation_kit as sok

    return sok.DistributedOptimizer(make_optimizer(name), op="average")


def _look_up(side: str, job: jobs.Job, ids: Sequence, servers: int) -> tuple[Any, Any]:
    """Returns the rows of all features side by side, float32 [batch, features * dim], and rows by server."""
    import tensorflow as tf

    v1 = tf.compat.v1
    if side == NOTHING:
        return tf.ones([job.batch, job.features * job.dim]), None
    if side in (OURS, RANKS):
        import sparse_operation_kit as sok
        from sparse_operation_kit import native
        from sparse_operation_kit.lookup import group
        from sparse_operation_kit.tables import table_parts

        if side == OURS:  # each rank has called it
            sok.Init(global_batch_size=job.batch, seed=job.seed)
        tables = [
            sok.EmbeddingVariable(f"table_{feature}", job.dim, initializer=_ROW)
            for feature in range(job.features)
        ]
        lookups = [group.DenseLookup(*pair) for pair in zip(tables, ids)]
        (rows,) = group.lookup_group(lookups, side_by_side=True)
        sizes = [tf.stack(table_parts.of_parts(table, native.ops.sok_table_size)) for table in tables]
        return rows, tf.add_n(sizes)
    if side == TFRA:
        return tf.concat([_tfra_rows(job, *one, servers) for one in enumerate(ids)], axis=1), None
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
    return tf.concat(rows, axis=1), None


def _tfra_rows(job: jobs.Job, feature: int, ids: Any, servers: int) -> Any:
    from bench.tfra_side import de

    table = de.get_variable(
        f"tfra_{feature}",
        dim=job.dim,
        devices=[f"/job:ps/task:{server}/device:CPU:0" for server in range(servers)],
        initializer=_ROW,
        init_size=job.rows // servers,
    )
    return de.embedding_lookup_unique(table, ids, name=f"rows_{feature}")
