"""Tables that grow: new rows, the longest step, steps on rows that exist, and memory, at many sizes.

Each library trains one table in its own process. `tensorflow` is a `tf.Variable`, which has all rows from the
beginning. They take turns: first with batches of new keys, up to a number of rows, then with batches of keys
that the table has. `longest` is the longest step with new rows since the number of rows before, `at` is the
number of rows before that step, and `/median` is its time divided by their median; then come its processor
time, the part of that which is the kernel's, and its page faults. `processor` is the time of all threads.

A virtual machine may have to get memory from its host before a program can use it, which takes longer than
anything that a table does. With --held, a process touches memory before it measures, and gives a piece of it
back before each step with new rows.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np

from bench import flags, machine, plots, processes, report, sides
from bench.timing import Sample, Timing

_PEERS = ("tfra", "tensorflow")
FLAGS = {
    "rows": flags.Flag(flags.number(), "rows at which steps are measured", (2**20, 2**22, 2**24)),
    "dim": (16,),
    **dict(batch=2**20, threads=(2,), rounds=5, optimizer="lazy_adam"),
    "held": flags.Flag(flags.number(int, 0), "bytes for each new row that a process touches before", 0),
    "peers": flags.Flag(flags.one_of("name", _PEERS), "some of " + ",".join(_PEERS), _PEERS),
    "environments": flags.Flag(pathlib.Path, "folder of the peers' environments", sides.default_folder()),
    "other": flags.Flag(sides.built_checkout, f"another checkout: {sides.OTHER}"),
}
TOGETHER = ("rows", "peers")
_HASH = np.uint64(0x9E3779B97F4A7C15)
_NEW, _PROCESSOR, _OLD, _BYTES = "ns a new row", "processor ns a new row", "ns an id", "bytes a row"
_LONGEST, _AT, _TO_MEDIAN = "longest ms", "at", "/median"
# Of the longest step, after its processor time.
_OF_LONGEST = ("its processor ms", "its kernel ms", "its page faults")


def measure(point: argparse.Namespace) -> list[report.Result]:
    """Measures tables of one dim, at all numbers of rows."""
    names = [name for name in point.peers if sides.interpreter(name, point.environments) is not None]
    if point.other is not None:
        names.append(sides.OTHER)
    results, done = [], 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        running = {
            name: stack.enter_context(_process(name, point, pathlib.Path(folder)))
            for name in (sides.OURS, *names)
        }
        for process in running.values():
            process.wait_until_ready()
        for rows in sorted(point.rows):
            results.append(_measure_at(running, done, rows, point))
            done = max(done, rows)
    return results


def _process(name: str, point: argparse.Namespace, folder: pathlib.Path) -> processes.MeasuringProcess:
    numbers = [str(number) for number in (point.dim, point.threads, max(point.rows), point.held)]
    program = [str(sides.interpreter(name, point.environments)), "-m", "workloads.growth"]
    command = [*program, name, point.optimizer, *numbers]
    return processes.MeasuringProcess(name, command, sides.variables_of(name, point), folder / f"{name}.log")


def draw(path: pathlib.Path, results: Sequence[report.Result]) -> None:
    """Draws each number over rows."""
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for result in results:
        for what in (_NEW, _LONGEST, _OLD, _BYTES):
            for name in result.timings:
                line = panels.setdefault(what, {}).setdefault(name, {})
                line[result.question["rows"]] = result.counts[f"{name}: {what}"]
    plots.lines(path, "Tables that grow", panels, "rows", "")


def table(results: Sequence[report.Result]) -> str:
    """A line for each library at each number of rows."""
    columns = (_NEW, _PROCESSOR, _LONGEST, _AT, _TO_MEDIAN, *_OF_LONGEST, _OLD, _BYTES)
    lines = [
        [str(result.question["rows"]), str(result.question["dim"]), name]
        + [report.text_of(result.counts[f"{name}: {what}"]) for what in columns]
        for result in results
        for name in result.timings
    ]
    return report.markdown(["rows", "dim", "library", *columns], lines)


def _measure_at(
    running: dict[str, processes.MeasuringProcess], done: int, rows: int, point: argparse.Namespace
) -> report.Result:
    """Lets the tables grow from `done` rows to `rows`, and measures."""
    processes.say(f"{rows} rows")

    def ask(what: str, steps: list[tuple[int, int]]) -> dict[str, list[list[float]]]:
        taken: dict[str, list[list[float]]] = {name: [] for name in running}
        for first, count in steps:
            for name, process in running.items():
                answer = process.ask(f"0 {what} {first}:{count}")
                taken[name].append([float(number) for number in answer.split()])
        return taken

    firsts = range(done, rows, point.batch)
    grown = ask("new", [(first, min(point.batch, rows - first)) for first in firsts])
    old = ask("old", [(rows, point.batch)] * point.rounds)
    timings = {name: Timing.of([Sample(*step[:2]) for step in steps]) for name, steps in old.items()}
    counts = {}
    for name, process in running.items():
        walls = [step[0] for step in grown[name]]
        longest = grown[name][walls.index(max(walls))]
        counts[f"{name}: {_NEW}"] = sum(walls) * 1e6 / (rows - done)
        counts[f"{name}: {_PROCESSOR}"] = sum(step[1] for step in grown[name]) * 1e6 / (rows - done)
        counts[f"{name}: {_LONGEST}"] = max(walls)
        counts[f"{name}: {_AT}"] = firsts[walls.index(max(walls))]
        counts[f"{name}: {_TO_MEDIAN}"] = max(walls) / float(np.median(walls))
        counts.update({f"{name}: {what}": number for what, number in zip(_OF_LONGEST, longest[1:])})
        counts[f"{name}: {_OLD}"] = timings[name].median * 1e6 / point.batch
        counts[f"{name}: {_BYTES}"] = float(process.ask("0 bytes 0")) / rows
    return report.Result({"rows": rows, "dim": point.dim}, timings, sides.OURS, counts)


def _keys(numbers: np.ndarray) -> np.ndarray:
    """Distinct keys from the whole int64 range."""
    return (numbers.astype(np.uint64) * _HASH).view(np.int64)


def _answer(
    library: str, optimizer: str, dim: int, threads: int, rows: int, held: int
) -> Callable[[str, str], object]:
    """A library's process: answers "new first:count", "old rows:count" and "bytes"."""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    config = v1.ConfigProto(intra_op_parallelism_threads=threads)
    session = v1.Session(config=config)
    ids = v1.placeholder(tf.int64, [None])
    make = {"tfra": _tfra, "tensorflow": _tensorflow}.get(library, _ours)
    step = make(session, ids, (rows, dim), optimizer)
    before = _resident_bytes()
    session.run(v1.global_variables_initializer())
    call = session.make_callable(step, [ids])
    call(_keys(np.arange(0)))  # The first run takes longer.
    if make is not _tensorflow:
        before = _resident_bytes()
    memory = machine.HeldMemory(held * rows)
    rng = np.random.default_rng(1)

    def answer(what: str, argument: str) -> object:
        if what == "bytes":
            return _resident_bytes() - memory.size - before
        first, count = map(int, argument.split(":"))
        if what == "new":
            memory.give_back(held * count)
        keys = np.arange(first, first + count) if what == "new" else rng.integers(0, first, count)
        if make is not _tensorflow:
            keys = _keys(keys)
        wall, usage = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        call(keys)
        wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
        user, kernel = after.ru_utime - usage.ru_utime, after.ru_stime - usage.ru_stime
        return f"{wall * 1e3} {(user + kernel) * 1e3} {kernel * 1e3} {after.ru_minflt - usage.ru_minflt}"

    return answer


def _ours(session, ids, shape, optimizer):
    import sparse_operation_kit as sok

    session.run(sok.Init(global_batch_size=1, seed=1))
    return _train(sok.EmbeddingVariable("table", shape[1]), ids, optimizer)


def _tensorflow(session, ids, shape, optimizer):
    import tensorflow as tf

    del session
    return _train(tf.compat.v1.get_variable("table", shape, use_resource=True), ids, optimizer)


def _train(table, ids, optimizer):
    import tensorflow as tf

    from bench.session_sides import make_optimizer

    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids)))
    return make_optimizer(optimizer).apply_gradients(zip(tf.gradients(loss, [table]), [table]))


def _tfra(session, ids, shape, optimizer):
    import tensorflow as tf

    from bench.tfra_side import de, make_optimizer

    del session
    initializer = tf.compat.v1.random_normal_initializer(stddev=0.05)
    table = de.get_variable("table", dim=shape[1], devices=["/CPU:0"], initializer=initializer)
    rows, trained = de.embedding_lookup_unique(table, ids, name="trained", return_trainable=True)
    return make_optimizer(optimizer).minimize(tf.reduce_sum(tf.square(rows)), var_list=[trained])


def _resident_bytes() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    processes.answer_lines(lambda: _answer(*sys.argv[1:3], *map(int, sys.argv[3:])))
