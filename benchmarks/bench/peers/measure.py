"""Measures one set of tables in all libraries: starts their processes and checks that their results agree."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

from bench import ids, machine
from bench.axes import Axes, Bags, Tables
from bench.engine_process import EngineProcess, find_program
from bench.measuring_process import MeasuringProcess, ProcessContender
from bench.peers import environments, memory
from bench.peers.catalog import LIBRARIES, OURS
from bench.peers.job import Job
from bench.peers.report import Entry, Row
from bench.timing import Contender, Timing, measure

ENGINE = "engine"
OTHER_ENGINE = "engine_other"  # of the checkout that OTHER is taken from
GATHER = "gather"
_COPY = "memory copy"
# Libraries sum thousands of float32 gradients in different orders.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings for all tables of a run."""

    peers: tuple[str, ...]  # names of catalog.LIBRARIES, without ours, or ENGINE, OTHER_ENGINE
    whats: tuple[str, ...]  # "forward", "step"
    environments: pathlib.Path
    folder: pathlib.Path  # for ids and logs
    other: pathlib.Path | None = None  # the checkout of OTHER and OTHER_ENGINE


def run(axes: Axes, tables: Tables, threads: int, settings: Settings) -> list[Row]:
    """Measures all kinds of bags on one set of tables."""
    batch_sets = [
        ids.make_batches(bags, tables.features, tables.rows_per_table, axes.batches, axes.seed)
        for bags in axes.all_bags()
    ]
    files = []
    for number, batches in enumerate(batch_sets):
        files.append(settings.folder / f"ids_{number}")
        ids.write_batches(batches, files[-1])
    all_bags = tuple(axes.all_bags())
    job = Job(tables, all_bags, tuple(map(str, files)), axes.batches, threads, axes.seed)
    job.write(settings.folder / "job.json")
    rows: list[Row] = []
    for group in _groups(job, settings):
        with _Group(job, group, settings) as running:
            measured = [
                running.measure(number, bags, axes.rounds, batch_sets[number])
                for number, bags in enumerate(all_bags)
            ]
        together = [row for part in measured for row in part]
        rows = together if not rows else [a.joined(b) for a, b in zip(rows, together)]
    return rows


def _groups(job: Job, settings: Settings) -> list[list[str]]:
    able = [
        name
        for name in settings.peers
        if name in (ENGINE, OTHER_ENGINE) or job.tables.optimizer in LIBRARIES[name].optimizers
    ]
    needed, free = memory.library_bytes(job.tables, job.batch), memory.free_bytes(job.tables)
    groups, left_out = memory.groups_that_fit(able, needed, free)
    for name in left_out:
        say(f"  {name} is left out: its tables and ours do not fit into memory together.")
    return groups


def say(text: str) -> None:
    """Reports progress on standard error."""
    print(text, file=sys.stderr, flush=True)


class _Group:
    """Running processes: ours, some peers, and the bound. A context manager."""

    def __init__(self, job: Job, names: Sequence[str], settings: Settings) -> None:
        self._job = job
        self._settings = settings
        self._names = names
        self._stack = contextlib.ExitStack()
        self._running: dict[str, MeasuringProcess] = {}

    def __enter__(self) -> _Group:
        with contextlib.ExitStack() as stack:
            say(f"  filling tables: {', '.join((OURS, *self._names))}")
            started = {name: stack.enter_context(self._start(name)) for name in (OURS, *self._names)}
            if find_program("bare_gather_benchmark") is not None:
                started[GATHER] = stack.enter_context(
                    self._start_program(find_program("bare_gather_benchmark"))
                )
            for name, process in started.items():
                self._wait(name, process)
            self._check()
            say("  outputs agree; measuring")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def _start(self, name: str) -> MeasuringProcess:
        if name == ENGINE:
            return self._start_program(find_program("group_benchmark"))
        if name == OTHER_ENGINE:
            return self._start_program(
                environments.built_by(self._settings.other) / "benchmarks/engine/group_benchmark"
            )
        library, settings = LIBRARIES[name], self._settings
        python = environments.interpreter(library, settings.environments)
        command = [str(python), "-m", "bench.peers.program", name, str(settings.folder / "job.json")]
        variables = environments.variables(library, self._job.threads, settings.other)
        return MeasuringProcess(name, command, variables, settings.folder / f"{name}.log")

    def _start_program(self, program: pathlib.Path) -> MeasuringProcess:
        job = self._job
        kinds = ["dense" if bags.hotness == 1 else "mean" for bags in job.bags]
        files = [(kind, pathlib.Path(path)) for kind, path in zip(kinds, job.id_files)]
        return EngineProcess(program, job.tables, job.batch, job.batches, job.threads, files)

    def _wait(self, name: str, process: MeasuringProcess) -> None:
        try:
            process.wait_until_ready()
        except RuntimeError as error:
            if name == OURS:
                raise
            say(f"  Continuing without {name}: {error}")
            return
        self._running[name] = process

    def _check(self) -> None:
        """Trains each library one step on each batch, and compares outputs before and after.

        Raises:
          AssertionError: A library's outputs differ from ours.
        """
        checked = [
            name for name in self._running if name in LIBRARIES and LIBRARIES[name].trains_with is None
        ]
        for number in range(len(self._job.bags)):
            paths = {name: self._settings.folder / f"{name}_{number}.npy" for name in checked}
            for name, path in paths.items():
                self._running[name].ask(f"{number} check {path}")
            ours = np.load(paths[OURS])
            for name in checked:
                what = f"{name} and {OURS}, {self._job.bags[number]}, before or after training"
                np.testing.assert_allclose(np.load(paths[name]), ours, _RELATIVE, _ABSOLUTE, err_msg=what)

    def measure(self, number: int, bags: Bags, rounds: int, batches: list[ids.Batch]) -> list[Row]:
        """Measures one kind of bags; returns a row for each kind of call."""
        job, whats = self._job, self._settings.whats
        copy = machine.MemoryCopy(_COPY, job.threads)
        contenders: list[Contender] = [copy]
        for what in whats:
            for name, process in self._running.items():
                if name != GATHER or what == "forward":
                    contenders.append(ProcessContender(f"{name} {what}", process, number, what))
        timings = measure(contenders, rounds)
        id_count, unique = ids.ids_per_step(batches), ids.unique_per_step(batches)
        bandwidth = copy.gigabytes_per_second(timings[_COPY].minimum)
        return [
            Row(
                threads=job.threads,
                tables=job.tables,
                bags=bags,
                what=what,
                ids=id_count,
                unique=unique,
                megabytes=job.tables.bytes_moved(what, bags.batch, id_count, unique) / 1e6,
                copy_gb_per_s=bandwidth,
                gather=timings.get(f"{GATHER} {what}"),
                entries=self._entries(what, timings),
            )
            for what in whats
        ]

    def _entries(self, what: str, timings: dict[str, Timing]) -> tuple[Entry, ...]:
        ours = timings[f"{OURS} {what}"]
        return tuple(Entry(name, timings[f"{name} {what}"], ours) for name in self._running if name != GATHER)
