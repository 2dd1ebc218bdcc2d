"""Forward lookups and training steps of this library and others, each in its own process."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

from bench import compare, flags, machine, plots, processes, report, sides
from bench.jobs import Job
from bench.timing import contender

_PEERS = (*(name for name in sides.LIBRARIES if name not in (sides.OURS, sides.OTHER)), compare.ENGINE)
_OTHER_ENGINE = "engine_other"  # of the checkout that OTHER is taken from
_WHATS = ("forward", "step")
FLAGS = {
    **dict(threads=(2,), table_mb=(640.0,), rows=None, features=(26,), batch=(4096,), zipf=(1.05,)),
    **dict(dim=(16, 64), optimizer=("lazy_adam", "rowwise_adagrad"), hotness=(1, 10)),
    **dict(batches=4, rounds=7, seed=1),
    "peers": flags.Flag(flags.one_of("name", _PEERS), "some of " + ",".join(_PEERS), _PEERS),
    "row_dtype": flags.Flag(flags.one_of("type", flags.ROW_DTYPES), "type of rows", ("float32",)),
    "what": flags.Flag(flags.one_of("name", _WHATS), "forward, step or both", _WHATS),
    "environments": flags.Flag(pathlib.Path, "folder of the peers' environments", sides.default_folder()),
    "other": flags.Flag(sides.built_checkout, f"another checkout: {sides.OTHER} and {_OTHER_ENGINE}"),
}
TOGETHER = ("peers", "what")

# Memory of a library per byte of rows and slots: it includes indexes, free slots, and buffers from which
# tables were filled. With 640 MB of rows, tfra took 2.1, TensorFlow and ours took 1.6.
_OVER_RECORDS = 1.6
_PROCESS_BYTES = 0.4e9  # an interpreter with its libraries
_OWN_BYTES = 1.2e9  # of this process: the arrays of the memory copy, and ids


def measure(point: argparse.Namespace) -> list[report.Result]:
    """Measures one set of tables, in several groups of libraries if not all fit into memory together."""
    job = Job.of(point)
    processes.say(str(job))
    names = [name for name in point.peers if _can_run(name, job, point)]
    if point.other is not None:
        names += [sides.OTHER, _OTHER_ENGINE]
    batches = job.make_batches()
    results: list[report.Result] = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        job = job.write_ids(batches, folder / "ids")
        free = machine.available_bytes() - _OWN_BYTES - job.bytes  # the bare gather's rows
        for group in groups_that_fit(names, library_bytes(job), free):
            processes.say(f"  filling tables: {', '.join([sides.OURS, *group])}")
            with _running(job, group, point, folder) as measured:
                compare.check_agreement(measured, folder, job.row_dtype)
                processes.say("  outputs agree; measuring")
                copy = contender(machine.memory_copy(job.threads))
                results += compare.compare(job, batches, measured, point.what, point.rounds, copy)
    return results


def draw(path: pathlib.Path, results: Sequence[report.Result]) -> None:
    """Draws milliseconds per call, in a panel for each kind of call and optimizer."""
    plots.bars(path, plots.panels_of(results, ("what", "optimizer")), "ms per call")


def _can_run(name: str, job: Job, point: argparse.Namespace) -> bool:
    if name == compare.ENGINE:
        return processes.find_program("group_benchmark") is not None
    return sides.can_run(name, job, point.environments)


def library_bytes(job: Job) -> float:
    """The expected memory of one library's process."""
    outputs = 4 * job.features * job.batch * job.dim
    # Outputs and their gradients, and copies of both in libraries that join or split those of all features.
    return _OVER_RECORDS * job.features * job.rows * job.record_bytes + 4 * outputs + _PROCESS_BYTES


def groups_that_fit(peers: Sequence[str], bytes_of_one: float, available: float) -> list[list[str]]:
    """Splits the peers into groups that fit into memory together with our tables; at least one group."""
    beside_ours = int(min(available / bytes_of_one, len(peers) + 1)) - 1
    if peers and beside_ours < 1:
        processes.say("All peers are left out: the tables of one and ours do not fit into memory together.")
    if not peers or beside_ours < 1:
        return [[]]
    return [list(peers[begin : begin + beside_ours]) for begin in range(0, len(peers), beside_ours)]


@contextlib.contextmanager
def _running(
    job: Job, group: Sequence[str], point: argparse.Namespace, folder: pathlib.Path
) -> Iterator[dict[str, processes.MeasuringProcess]]:
    """Running processes: ours, the group's, and the bare gather. Those that end early are left out."""
    programs = {
        compare.ENGINE: processes.find_program("group_benchmark"),
        _OTHER_ENGINE: point.other and point.other / "benchmarks" / "engine" / "group_benchmark",
        # It reads rows of float32.
        compare.GATHER: processes.find_program("parts_benchmark") if job.row_dtype == "float32" else None,
    }
    with contextlib.ExitStack() as stack:
        started = {}
        for name in (sides.OURS, *group, compare.GATHER):
            if name in sides.LIBRARIES:
                started[name] = stack.enter_context(sides.start(name, job, point, folder))
            elif programs[name] is not None:
                command = processes.engine_command(programs[name], job)
                started[name] = stack.enter_context(processes.MeasuringProcess(name, command))
        measured = {}
        for name, process in started.items():
            try:
                process.wait_until_ready()
                measured[name] = process
            except RuntimeError as error:
                if name == sides.OURS:
                    raise
                processes.say(f"  Continuing without {name}: {error}")
        yield measured
