"""Parts of the engine, each beside the code that it is compared with: tf.unique, or bare loops.

Needs `bazel build //benchmarks/engine:parts_benchmark`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping

from bench import compare, flags, jobs, machine, processes, timing
from bench.report import Goal, Result

_PARTS = ("dedup", "index", "gather", "update", "cores")
_SIZE = flags.number()
FLAGS = {
    "part": flags.Flag(flags.one_of("part", _PARTS), "some of " + ",".join(_PARTS), _PARTS[:3]),
    "ids": flags.Flag(_SIZE, "dedup: ids per batch", (4 << 10, 106 << 10, 1 << 20)),
    "distinct": flags.Flag(_SIZE, "dedup: ids are drawn from so many", 10_000_000),
    "id_zipf": flags.Flag(flags.number(float, 0), "dedup: Zipf exponent of ids", (1.05, 1.2, 0.0)),
    "keys": flags.Flag(_SIZE, "index: ids in the index", (10_000, 100_000, 1_000_000, 10_000_000)),
    "hand_overs": flags.Flag(_SIZE, "cores: round trips of a cache line in a call", 20_000),
    **dict(dim=(16, 64), table_mb=(500.0, 3000.0), hotness=10, zipf=1.05),
    **dict(optimizer=("lazy_adam", "adam"), threads=(1, 2), rounds=7, seed=1),
}
# Each part has its own combinations of these.
TOGETHER = tuple(FLAGS)

_BARE = "bare, "
_LINES = (32, 64, 128, 256)  # cache lines in flight in the bare loops
_CACHE_LINE = 64
_INDEX_IDS = 1 << 20  # ids per call
_GATHERED_IDS = 26 * 4096
# Batches that calls rotate over, so many that a batch's rows have left the caches before it is used again.
_GATHERED_BATCHES = 16


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures the parts that --part names."""
    program = processes.find_program("parts_benchmark")
    if program is None:
        sys.exit(1)
    with tempfile.TemporaryDirectory() as folder:
        run = _Run(point, program, pathlib.Path(folder))
        return [result for part in point.part for result in getattr(run, part)()]


class _Run:
    """Measures parts: each method one of them, for all combinations of the flags that concern it."""

    def __init__(self, point: argparse.Namespace, program: pathlib.Path, folder: pathlib.Path) -> None:
        self._point = point
        self._program = program
        self._folder = folder

    def dedup(self) -> Iterator[Result]:
        """Distinct ids and each id's position among these, compared with `tf.unique`, called eagerly."""
        point = self._point
        for ids, zipf, threads in itertools.product(point.ids, point.id_zipf, point.threads):
            job = self._draw(
                jobs.Job(1, point.distinct, batch=ids, zipf=zipf, threads=threads, seed=point.seed)
            )
            with self._engine(job) as engine, self._tensorflow(job) as other:
                contenders = {
                    "tf.unique": other.contender("unique"),
                    "a TensorFlow op alone": other.contender("identity"),
                    "engine": engine.contender("dedup"),
                }
                question = {"part": "dedup", "ids": ids, "zipf": zipf}
                yield self._result(question, job, self._dedup_bytes(job), contenders, Goal("tf.unique", 1))

    def index(self) -> Iterator[Result]:
        """Lookups of present ids, drawn uniformly, compared with a bare linear probe; one thread."""
        for keys in self._point.keys:
            job = self._draw(jobs.Job(1, keys, batch=_INDEX_IDS, seed=self._point.seed))
            with self._engine(job) as engine:
                contenders = {**_bare(engine, "probe"), "engine": engine.contender("find")}
                # For each id, reads the id and the cache line of its slot, and writes its row number.
                moved = (8 + _CACHE_LINE + 8) * _INDEX_IDS
                yield self._result({"part": "index", "keys": keys}, job, moved, contenders, Goal(_BARE, 0.8))

    def gather(self) -> Iterator[Result]:
        """Copying and pooling the rows of resolved ids, compared with bare loops over known positions."""
        for dim, table_mb, threads in self._tables():
            for part, hotness in (("gather", 1), ("pool", self._point.hotness)):
                job = self._scattered(dim, table_mb, threads, hotness, "sgd")
                with self._engine(job) as engine:
                    contenders = {**_bare(engine, part), "engine": engine.contender(part)}
                    question = {"part": part, "dim": dim, "MB": table_mb, "hotness": hotness}
                    moved = job.bytes_moved("forward", *self._counts(job))
                    yield self._result(question, job, moved, contenders, Goal(_BARE, 0.8))

    def update(self) -> Iterator[Result]:
        """An optimizer's step on a batch's distinct rows, beside LazyAdam's arithmetic on one thread."""
        for (dim, table_mb, threads), optimizer in itertools.product(self._tables(), self._point.optimizer):
            job = self._scattered(dim, table_mb, threads, 1, optimizer)
            with self._engine(job) as engine:
                names = {"bare LazyAdam, 1 thread": "update:bare", "engine": "update"}
                contenders = {name: engine.contender(what) for name, what in names.items()}
                question = {"part": "update", "dim": dim, "MB": table_mb, "optimizer": optimizer}
                moved = self._counts(job)[1] * (2 * job.record_bytes + 4 * dim)
                yield self._result(question, job, moved, contenders)

    def cores(self) -> Iterator[Result]:
        """The distance between two of the machine's cores, and the arithmetic of two threads and of one."""
        one, two, line = "arithmetic on 1 thread", "arithmetic on 2 threads", "a cache line to the other core"
        with self._engine(jobs.Job(1, 1)) as engine:
            whats = {line: f"hand_over:{self._point.hand_overs}", one: "busy:1", two: "busy:2"}
            contenders = {name: engine.contender(what) for name, what in whats.items()}
            timings = timing.measure(contenders, self._point.rounds)
        nanoseconds = timings.pop(line).median * 1e6 / (2 * self._point.hand_overs)
        work = 2 * timings[one].median / timings[two].median
        yield Result(
            {"part": "cores"}, timings, one, {f"{line}, ns": nanoseconds, "work of two / of one": work}
        )

    def _tables(self) -> Iterator[tuple]:
        return itertools.product(self._point.dim, self._point.table_mb, self._point.threads)

    def _scattered(self, dim: int, table_mb: float, threads: int, hotness: int, optimizer: str) -> jobs.Job:
        rows, batch = max(1, int(table_mb * 1e6) // (4 * dim)), max(1, _GATHERED_IDS // hotness)
        sizes = (1, rows, dim, optimizer, batch, hotness, self._point.zipf, _GATHERED_BATCHES)
        return self._draw(jobs.Job(*sizes, threads, self._point.seed))

    def _draw(self, job: jobs.Job) -> jobs.Job:
        return job.write_ids(job.make_batches(), self._folder / "ids")

    @staticmethod
    def _counts(job: jobs.Job) -> tuple[float, float]:
        batches = job.read_ids()
        return jobs.ids_per_step(batches), jobs.unique_per_step(batches)

    def _dedup_bytes(self, job: jobs.Job) -> float:
        """Reads the ids; writes the distinct ids, and for each id the index of its distinct id."""
        ids, unique = self._counts(job)
        return 8 * ids + 8 * unique + 4 * ids

    @contextlib.contextmanager
    def _engine(self, job: jobs.Job) -> Iterator[processes.MeasuringProcess]:
        command = processes.engine_command(self._program, job)
        with processes.MeasuringProcess("engine", command) as engine:
            engine.wait_until_ready()
            yield engine

    @contextlib.contextmanager
    def _tensorflow(self, job: jobs.Job) -> Iterator[processes.MeasuringProcess]:
        command = [sys.executable, "-m", "workloads.parts", json.dumps(vars(job))]
        log = self._folder / "tensorflow.log"
        with processes.MeasuringProcess("tf.unique", command, processes.environment(), log) as process:
            process.wait_until_ready()
            yield process

    def _result(
        self,
        question: Mapping[str, object],
        job: jobs.Job,
        moved: float,
        contenders: Mapping[str, timing.Contender],
        goal: Goal | None = None,
    ) -> Result:
        """Measures. Of the bare loops only the fastest is kept, which the goal is about."""
        processes.say(f"{question}, {job.threads} threads")
        copy = {compare.COPY: timing.contender(machine.memory_copy(job.threads))}
        timings = timing.measure({**copy, **contenders}, self._point.rounds)
        bound = timings.pop(compare.COPY).times(moved / machine.COPY_BYTES / 2)
        loops = [name for name in contenders if name.startswith(_BARE)]
        loops.sort(key=lambda name: timings[name].median)
        for slower in loops[1:]:
            del timings[slower]
        if goal is not None and loops:
            goal = Goal(loops[0], goal.least)
        return Result(
            {**question, "threads": job.threads},
            {f"{moved / 1e6:.1f} MB copied": bound, **timings},
            "engine",
            amount=self._counts(job)[0] / 1e6,
            unit="M ids",
            goals=() if goal is None else (goal,),
        )


def _bare(engine: processes.MeasuringProcess, part: str) -> dict[str, timing.Contender]:
    return {f"{_BARE}{lines} lines in flight": engine.contender(f"{part}:{lines}") for lines in _LINES}


def _measure_tensorflow(job: jobs.Job) -> None:
    """A program as in processes.py that measures `tf.unique`, and an op that does nothing."""
    import tensorflow as tf

    tf.compat.v1.enable_eager_execution()  # TensorFlow 1.15 would make ops of a graph
    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    tf.config.threading.set_inter_op_parallelism_threads(job.threads)
    rotation = itertools.cycle([tf.constant(batch[0].ids) for batch in job.read_ids()])
    calls = {
        "unique": lambda: tf.raw_ops.Unique(x=next(rotation), out_idx=tf.int32),
        "identity": lambda: tf.raw_ops.Identity(input=next(rotation)),
    }
    processes.answer_lines(lambda: lambda what, count: timing.sample(calls[what], int(count)))


if __name__ == "__main__":
    _measure_tensorflow(jobs.Job(**json.loads(sys.argv[1])))
