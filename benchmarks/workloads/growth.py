"""Tables that grow: new rows, the longest step, steps on rows that exist, and memory, at many sizes.

Each library trains one table in its own process. `tensorflow` is a `tf.Variable`, which has all rows from the
beginning. They take turns: first with batches of new keys, up to a number of rows, then with batches of keys
that the table has. `longest` is the longest step with new rows since the number of rows before, and
`longest / median` its time divided by their median. `processor` is the time of all threads. `of the kernel
alone` is what a process takes that only writes to as many bytes of new memory, in the same turns and with as
many threads. The second table says of each longest step the number of rows before it (`at`), its processor
time, the part of that which is the kernel's, and its page faults. The third compares steps with new rows by
what the machine's load does not change: processor time, and memory that a step adds to the process.

A virtual machine may have to get memory from its host before a program can use it, which takes longer than
anything that a table does. With --held, a process touches memory before it measures, and gives a piece of it
back before each step with new rows.

Peers need more memory than ours: with --peer_rows they, and the process that only writes to memory, stop at
so many rows. Results of several runs, such as one without peers to more rows, become one table and one
picture:

    measure.py growth --saved few.json,many.json --plot docs/images/growth.png --into docs/performance.md
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

from bench import flags, jobs, machine, plots, processes, report, sides
from bench.timing import Sample, Timing

_PEERS = ("tfra", "tensorflow")
_OWN = (sides.OURS, sides.OTHER)
FLAGS = {
    "rows": flags.Flag(flags.number(), "rows at which steps are measured", (2**20, 2**22, 2**24)),
    "dim": (16,),
    **dict(batch=2**20, threads=(2,), rounds=5, optimizer="lazy_adam"),
    "held": flags.Flag(flags.number(int, 0), "bytes for each new row that a process touches before", 0),
    "peer_rows": flags.Flag(flags.number(), "rows at which all but this library stop", 2**62),
    "peers": flags.Flag(flags.one_of("name", _PEERS), "some of " + ",".join(_PEERS), _PEERS),
    "environments": flags.Flag(pathlib.Path, "folder of the peers' environments", sides.default_folder()),
    "other": flags.Flag(sides.built_checkout, f"another checkout: {sides.OTHER}"),
}
TOGETHER = ("rows", "peers")
_NEW, _PROCESSOR, _OLD, _BYTES = "ns a new row", "processor ns", "ns an id that exists", "bytes a row"
_KERNEL = "of the kernel alone"
_LONGEST, _TO_MEDIAN = "longest step, ms", "longest / median"
# Of the longest step.
_OF_LONGEST = ("processor ms", "kernel ms", "page faults")
_AT = "at"
# Of all steps with new rows, by the number that `_measured` gives at this place.
_OF_STEPS = {"processor ms": 1, "MiB": 4}
# A process that only writes to memory, and is no library.
_MEMORY = "memory"


def measure(point: argparse.Namespace) -> list[report.Result]:
    """Measures tables of one dim, at all numbers of rows."""
    names = [sides.OURS, _MEMORY] + ([] if point.other is None else [sides.OTHER])
    names += [name for name in point.peers if sides.interpreter(name, point.environments) is not None]
    results, done = [], 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(_process(name, point, pathlib.Path(folder))) for name in names}
        for process in running.values():
            process.wait_until_ready()
        for rows in sorted(point.rows):
            for name in set(running) - set(_OWN):
                if rows > point.peer_rows:
                    running.pop(name).__exit__()
            results.append(_measure_at(running, done, rows, point))
            done = max(done, rows)
    return results


def _process(name: str, point: argparse.Namespace, folder: pathlib.Path) -> processes.MeasuringProcess:
    measured = [rows for rows in point.rows if name in _OWN or rows <= point.peer_rows]
    most = max(measured, default=1)
    numbers = [str(number) for number in (point.dim, point.threads, most, point.held)]
    library = sides.OURS if name == _MEMORY else name
    program = [str(sides.interpreter(library, point.environments)), "-m", "workloads.growth"]
    command = [*program, name, point.optimizer, *numbers]
    return processes.MeasuringProcess(
        name, command, sides.variables_of(library, point), folder / f"{name}.log"
    )


def draw(path: pathlib.Path, results: Sequence[report.Result]) -> None:
    """Draws each number over rows."""
    panels: dict[str, dict[str, dict[int, float]]] = {}
    optimizers = {result.question["optimizer"] for result in results}
    for result in results:
        for what in (_NEW, _LONGEST, _OLD, _BYTES):
            for name in result.timings:
                title = _title(name) + (f", {result.question['optimizer']}" if len(optimizers) > 1 else "")
                line = panels.setdefault(what, {}).setdefault(title, {})
                line[result.question["rows"]] = result.counts[f"{name}: {what}"]
    plots.lines(path, "Tables that grow", panels, "rows", "")


def table(results: Sequence[report.Result]) -> str:
    """A line for each library at each number of rows, what their longest steps did, and how steps differ."""
    results = sorted(results, key=lambda result: (result.question["optimizer"], result.question["rows"]))
    measured = (_NEW, _PROCESSOR, _KERNEL, _LONGEST, _TO_MEDIAN, _OLD, _BYTES)
    tables = []
    of_steps = [name for what in _OF_STEPS for name in _spread(what)]
    for columns in (measured, (_AT, _LONGEST, *_OF_LONGEST), of_steps):
        lines = [
            [f"{result.question['rows']:,}", result.question["optimizer"], _title(name)]
            + [_cell(result.counts.get(f"{name}: {what}", "")) for what in columns]
            for result in results
            for name in result.timings
            if f"{name}: {columns[0]}" in result.counts
        ]
        tables.append(report.markdown(["rows", "optimizer", "library", *columns], lines))
    return "\n\n".join(tables)


def _spread(what: str) -> tuple[str, str, str]:
    """The names of the median, the most and their ratio."""
    return f"{what} of a step", f"{what}, most", f"{what}, most / median"


def _cell(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) and value >= 100 else report.text_of(value)


def _title(name: str) -> str:
    titles = {sides.OURS: "this library", sides.OTHER: "other checkout", "tensorflow": "tf.Variable"}
    return titles.get(name, name)


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
    memory = grown.pop(_MEMORY, [])
    old = ask("old", [(rows, point.batch)] * point.rounds)
    timings = {name: Timing.of([Sample(*step[:2]) for step in old[name]]) for name in grown}
    counts = {}
    if memory:
        counts[f"{sides.OURS}: {_KERNEL}"] = sum(step[0] for step in memory) * 1e6 / (rows - done)
    for name, steps in grown.items():
        walls = [step[0] for step in steps]
        longest = steps[walls.index(max(walls))]
        counts[f"{name}: {_NEW}"] = sum(walls) * 1e6 / (rows - done)
        counts[f"{name}: {_PROCESSOR}"] = sum(step[1] for step in steps) * 1e6 / (rows - done)
        counts[f"{name}: {_LONGEST}"] = max(walls)
        counts[f"{name}: {_AT}"] = float(firsts[walls.index(max(walls))])
        counts[f"{name}: {_TO_MEDIAN}"] = max(walls) / float(np.median(walls))
        counts.update({f"{name}: {what}": number for what, number in zip(_OF_LONGEST, longest[1:4])})
        for what, place in _OF_STEPS.items():
            numbers = [step[place] for step in steps]
            median, most = float(np.median(numbers)), max(numbers)
            for title, number in zip(_spread(what), (median, most, most / median if median > 0 else 0.0)):
                counts[f"{name}: {title}"] = number
        counts[f"{name}: {_OLD}"] = timings[name].median * 1e6 / point.batch
        counts[f"{name}: {_BYTES}"] = float(running[name].ask("0 bytes 0")) / rows
    question = {"rows": rows, "dim": point.dim, "optimizer": point.optimizer}
    return report.Result(question, timings, sides.OURS, counts)


def _answer(
    library: str, optimizer: str, dim: int, threads: int, rows: int, held: int
) -> Callable[[str, str], object]:
    """A library's process: answers "new first:count", "old rows:count" and "bytes"."""
    if library == _MEMORY:
        return _answer_memory(optimizer, dim, threads, rows, held)
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    config = v1.ConfigProto(intra_op_parallelism_threads=threads)
    session = v1.Session(config=config)
    ids = v1.placeholder(tf.int64, [None])
    make = {"tfra": _tfra, "tensorflow": _tensorflow}.get(library, _ours)
    step = make(session, ids, (rows, dim), optimizer)
    before = machine.resident_bytes("VmRSS")
    session.run(v1.global_variables_initializer())
    call = session.make_callable(step, [ids])
    call(jobs.scattered_keys(np.arange(0)))  # The first run takes longer.
    if make is not _tensorflow:
        before = machine.resident_bytes("VmRSS")
    memory = machine.HeldMemory(held * rows)
    rng = np.random.default_rng(1)

    def answer(what: str, argument: str) -> object:
        if what == "bytes":
            return machine.resident_bytes("VmRSS") - memory.size - before
        first, count = map(int, argument.split(":"))
        if what == "new":
            memory.give_back(held * count)
        keys = np.arange(first, first + count) if what == "new" else rng.integers(0, first, count)
        if make is not _tensorflow:
            keys = jobs.scattered_keys(keys)
        return _measured(lambda: call(keys))

    return answer


def _answer_memory(
    optimizer: str, dim: int, threads: int, rows: int, held: int
) -> Callable[[str, str], object]:
    """A process that writes to the memory of new rows: records, keys, and an index of 40 bytes a key."""
    row_bytes = jobs.Job(1, rows, dim, optimizer).record_bytes + 8 + 40
    new = machine.NewMemory(row_bytes * rows, threads)
    memory = machine.HeldMemory(held * rows)

    def answer(what: str, argument: str) -> object:
        if what != "new":
            return 0
        count = int(argument.split(":")[1])
        memory.give_back(held * count)
        return _measured(lambda: new.touch(row_bytes * count))

    return answer


def _measured(call: Callable[[], object]) -> str:
    """Milliseconds, processor milliseconds, the kernel's, page faults, and the new resident MiB of a call."""
    resident = machine.resident_bytes("VmRSS")
    wall, usage = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    call()
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
    mebibytes = (machine.resident_bytes("VmRSS") - resident) / 2**20
    user, kernel = after.ru_utime - usage.ru_utime, after.ru_stime - usage.ru_stime
    faults = after.ru_minflt - usage.ru_minflt
    return f"{wall * 1e3} {(user + kernel) * 1e3} {kernel * 1e3} {faults} {mebibytes}"


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


if __name__ == "__main__":
    processes.answer_lines(lambda: _answer(*sys.argv[1:3], *map(int, sys.argv[3:])))
