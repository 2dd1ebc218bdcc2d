"""Restoring one table: beside saving it, in other forms, on other numbers of ranks, and of other systems.

A process trains a table with LazyAdam and saves it; the command line and TensorFlow's SaveV2 write the same
rows and slots in other systems' forms. Then, in rounds, a process for each form restores it into an empty
table. That of our own form also saves the table again, and restores it once more over its rows. An increment
has a tenth of the rows, and is restored with the checkpoint that it builds on; raw files have weights only.
Files are dropped from the page cache before they are read. What a restore needs of the kernel, without the
restore: `new memory` is a process that writes to as many bytes of new memory as the table has, `reading` one
that reads the files and keeps nothing. `MiB above` is the peak of the process's resident set, less its size
afterwards.

With --ranks, each number of ranks restores what the one before it saved, the first one our own form, and then
saves. Their processor time is that of rank 0, times the number of ranks. With --servers, each number of
parameter servers does the same. The servers and their worker are in one process, so that its processor time
is theirs. `convert` is the command line that makes the checkpoint of another system one of ours, its start
included, of DeepRec's form.

A save needs no memory, and a virtual machine may have to get that of a restore from its host. With --held, a
process touches memory before it measures, and gives it back right before each restore.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench import flags, machine, processes, ranks, report, servers, timing
from bench.report import Result

_OWN = "own"
_INCREMENT, _RAW = "increment", "raw"
_SERVERS = "servers"
_CONVERT, _CONVERTED = "convert", "deeprec"
# Of the command line's `export`.
_EXPORTED = ("deeprec", "sok2", "variable")
_FORMS = (_OWN, _INCREMENT, _RAW, *_EXPORTED, "recommenders_addons", _CONVERT)
FLAGS = {
    "rows": flags.Flag(flags.number(), "rows of the table", (10_000_000,)),
    "dim": 16,
    "rounds": 3,
    "threads": 2,
    "forms": flags.Flag(flags.one_of("form", _FORMS), "some of " + ",".join(_FORMS), _FORMS),
    "ranks": flags.Flag(flags.number(), "numbers of ranks, one after the other", ()),
    "servers": flags.Flag(flags.number(), "numbers of parameter servers, one after the other", ()),
    "held": flags.Flag(flags.number(int, 0), "bytes for each row that a process touches before", 0),
    "other": flags.Flag(pathlib.Path, "another built checkout, whose saves and restores are measured too"),
    "folder": flags.Flag(str, "where to write; by default the system's folder for temporary files"),
}
TOGETHER = ("forms", "ranks", "servers")
_KEYS_PER_STEP = 200_000


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one size."""
    forms = list(dict.fromkeys((_OWN, *point.forms)))
    samples: dict[str, list[timing.Sample]] = {}
    above: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="sok-restores-", dir=point.folder) as made:
        folder = pathlib.Path(made)
        _run("make", _OWN, point, folder)
        for form in _EXPORTED:
            if form in forms or (form == _CONVERTED and _CONVERT in forms):
                _export(form, point, folder)
        for _ in range(point.rounds):
            for form, other in [(form, other) for form in forms for other in (point.other, None)]:
                if form == _CONVERT:
                    if other is None:
                        samples.setdefault(form, []).append(_convert(folder))
                    continue
                if other is None or form == _OWN:
                    done = _run("restore", form, point, folder, other)
                    for what, sample in done["samples"].items():
                        name = what if other is None else f"{what}, other checkout"
                        samples.setdefault(name, []).append(timing.Sample(*sample))
                    if other is None:
                        above[form] = max(above.get(form, 0), done["above"] / 2**20)
                    if other is None and form == _OWN:
                        _add_kernels(point, folder, done["table"], samples)
            for what, taken in {**_over_ranks(point, folder), **_over_servers(point, folder)}.items():
                samples.setdefault(what, []).append(taken)
    timings = {what: timing.Timing.of(taken) for what, taken in samples.items()}
    return [Result({"rows": point.rows, "dim": point.dim}, timings, _OWN, above)]


def _add_kernels(
    point: argparse.Namespace, folder: pathlib.Path, table_bytes: int, samples: dict[str, list[timing.Sample]]
) -> None:
    """Measures what a restore of our own form needs of the kernel."""
    threads = point.threads or os.cpu_count()
    touched = machine.touch(table_bytes, threads, held=point.held > 0)
    samples.setdefault("new memory", []).append(touched)
    machine.drop_from_cache(folder / _OWN)
    paths = sorted((folder / _OWN).glob("model.*"))
    samples.setdefault("reading", []).append(machine.read_files(paths, threads))


def table(results: Sequence[Result]) -> str:
    """A line for the save, for each form, and for what they are compared with."""
    head = ["rows", "dim", "what", "s (min)", "cpu s", "/save", "cpu /save", "/own", "cpu /own", "MiB above"]
    lines = []
    for result in results:
        question = [str(result.question[key]) for key in ("rows", "dim")]
        for name, taken in result.timings.items():
            line = [*question, name, f"{taken.median / 1e3:.2f} ({taken.minimum / 1e3:.2f})"]
            line.append(f"{taken.median_cpu / 1e3:.2f}")
            for other in (result.timings["save"], result.timings[_OWN]):
                line.append(f"{taken.median / other.median:.2f}")
                line.append(f"{taken.median_cpu / other.median_cpu:.2f}")
            lines.append([*line, report.text_of(result.counts.get(name, ""))])
    return report.markdown(head, lines)


def _over_ranks(point: argparse.Namespace, folder: pathlib.Path) -> dict[str, timing.Sample]:
    """Restores and saves on each number of ranks."""
    samples: dict[str, timing.Sample] = {}
    before, saved = 1, folder / _OWN
    for number, count in enumerate(point.ranks):
        machine.drop_from_cache(saved)
        to = folder / f"ranks{number % 2}"
        launch = {"ranks": count, "rows": point.rows, "dim": point.dim, "threads": 0, "held": point.held}
        launch.update({"batch": count, "seed": 1, "transport": "mpi", "cycle_time": 1.0})
        (result,) = ranks.launch("restores", argparse.Namespace(**launch, saved=str(saved), to=str(to)))
        for what, taken in result.timings.items():
            name = f"{before} to {count} ranks" if what == "restore" else f"save, {count} ranks"
            samples[name] = timing.Sample(taken.median, taken.median_cpu * count)
        before, saved = count, to
    return samples


def _over_servers(point: argparse.Namespace, folder: pathlib.Path) -> dict[str, timing.Sample]:
    """Restores and saves on each number of parameter servers."""
    samples: dict[str, timing.Sample] = {}
    before, saved = 1, _OWN
    for number, count in enumerate(point.servers):
        done = _run(f"{_SERVERS}{count}", saved, point, folder)["samples"]
        samples[f"{before} to {count} servers"] = timing.Sample(*done["restore"])
        samples[f"save, {count} servers"] = timing.Sample(*done["save"])
        before, saved = count, f"{_SERVERS}{number % 2}"
        shutil.rmtree(folder / saved, ignore_errors=True)
        (folder / "again").rename(folder / saved)
    return samples


def _convert(folder: pathlib.Path) -> timing.Sample:
    """The command line, which makes a checkpoint of another system one of ours."""
    machine.drop_from_cache(folder / _CONVERTED)
    to = folder / _CONVERT
    command = [sys.executable, "-m", "sparse_operation_kit.checkpoint", "convert"]
    (prefix,) = {path.with_suffix("") for path in (folder / _CONVERTED).rglob("*.index")}
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    processes.output([*command, str(prefix), "--to", str(to)])
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(to)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return timing.Sample(wall * 1e3, used * 1e3)


def measure_rank(rank: ranks.Rank) -> list[Result]:
    """Restores and saves, on each rank."""
    program = _Program(rank.session, rank.point.dim)
    saved, to = pathlib.Path(rank.point.saved), pathlib.Path(rank.point.to)
    memory = machine.HeldMemory(rank.point.held * rank.point.rows // rank.size)
    program.wait_for_all()
    memory.give_back(memory.size)
    restored = timing.sample(lambda: program.restore(saved), 1)
    program.check(rank.point.rows)
    timings = {"restore": restored, "save": timing.sample(lambda: program.save(to), 1)}
    return [Result({}, {what: timing.Timing.of([taken]) for what, taken in timings.items()})]


def _run(
    stage: str, form: str, point: argparse.Namespace, folder: pathlib.Path, other: pathlib.Path | None = None
) -> dict:
    machine.drop_from_cache(folder / (_OWN if form == _INCREMENT else form))
    numbers = (point.rows, point.dim, point.threads, point.held)
    path = {}
    if other is not None:
        site = str(other.absolute() / "bazel-bin" / "tools" / "site")
        path = {"PYTHONPATH": os.pathsep.join([site, str(processes.BENCHMARKS)])}
    return processes.output_of_module("workloads.restores", stage, form, folder, *numbers, **path)


def _export(form: str, point: argparse.Namespace, folder: pathlib.Path) -> None:
    saved = str(folder / _OWN / "model")
    program = [sys.executable, "-m", "sparse_operation_kit.checkpoint", "export", saved]
    rows = ["--rows", str(point.rows)] if form == "variable" else []
    processes.output([*program, "--format", form, "--to", str(folder / form), *rows])


class _Program:
    """The table of a session after `sok.Init`."""

    def __init__(self, session: Any, dim: int) -> None:
        import tensorflow as tf

        import sparse_operation_kit as sok
        from sparse_operation_kit.deeprec.incremental_saver import IncrementalSaver

        v1 = tf.compat.v1
        self._session = session
        self._keys = v1.placeholder(tf.int64, [None])
        self._table = sok.EmbeddingVariable("table", dim)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(self._table, self._keys))
        self._optimizer = sok.tf.keras.optimizers.LazyAdamOptimizer(0.1)
        self._step = self._optimizer.minimize(loss)
        self._saver = v1.train.Saver([self._table])
        self._increments = IncrementalSaver([self._table])
        self._raw = sok.Saver()
        self._session.run(v1.global_variables_initializer())
        (statistics,) = sok.table_statistics([self._table]).values()
        self._rows = statistics.rows  # on all ranks

    def make(self, folder: pathlib.Path, rows: int) -> None:
        """Trains rows of the keys [0, rows), in random order, and writes the forms that no command writes."""
        import tensorflow as tf

        keys = np.random.default_rng(1).permutation(rows)
        self._train(keys)
        self.save(folder / _OWN)
        self._save_raw(folder / _RAW)
        reader = tf.train.load_checkpoint(str(folder / _OWN / "model"))
        names, tensors = [], []
        for array, name in (
            ("values", "table/table_mht_1of1"),
            ("slot-m", "m/table_Adam_m_mht_1of1"),
            ("slot-v", "v/table_Adam_v_mht_1of1"),
        ):
            names += [f"{name}-keys", f"{name}-values"]
            tensors += [reader.get_tensor(f"table#0/{part}") for part in ("keys", array)]
        (folder / "recommenders_addons").mkdir()
        places = [tf.compat.v1.placeholder(tensor.dtype) for tensor in tensors]
        prefix = str(folder / "recommenders_addons" / "model")
        write = tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=places
        )
        self._session.run(write, dict(zip(places, tensors)))
        increment = str(folder / _OWN / _INCREMENT)
        self._increments.incremental_save(self._session, increment, global_step=1)
        self._train(keys[: rows // 10])
        self._increments.incremental_save(self._session, increment, global_step=2)

    def _train(self, keys: np.ndarray) -> None:
        for first in range(0, len(keys), _KEYS_PER_STEP):
            self._session.run(self._step, {self._keys: keys[first : first + _KEYS_PER_STEP]})

    def _save_raw(self, folder: pathlib.Path) -> None:
        folder.mkdir(exist_ok=True)
        self._session.run(self._raw.dump_to_file(self._table, str(folder / "model")))

    def wait_for_all(self) -> None:
        """Waits for all ranks."""
        self._session.run(self._rows)

    def check(self, rows: int) -> None:
        """Asserts that the table has this number of rows."""
        assert self._session.run(self._rows) == rows

    def save(self, folder: pathlib.Path) -> None:
        """Saves to a folder, on all ranks."""
        folder.mkdir(exist_ok=True)
        self._saver.save(self._session, str(folder / "model"), write_meta_graph=False)

    def restore(self, folder: pathlib.Path) -> None:
        """Restores what `save` wrote."""
        self._saver.restore(self._session, str(folder / "model"))

    def _restore_of(self, form: str, folder: pathlib.Path) -> Callable[[], object]:
        """A function that restores one form."""
        from sparse_operation_kit import experiment

        if form == "sok2":
            load = experiment.load(str(folder / form), self._table, self._optimizer)
        elif form == _RAW:
            load = self._raw.restore_from_file(self._table, str(folder / _RAW / "model"))
        elif form == _INCREMENT:
            return lambda: self._saver.restore(self._session, str(folder / _OWN / f"{_INCREMENT}-2"))
        else:
            return lambda: self.restore(folder / form)
        return lambda: self._session.run(load)

    def measure(self, form: str, folder: pathlib.Path, rows: int, held: int) -> dict:
        """Measures restores of one form, of our own and raw files a save, and of our own one over rows."""
        call = self._restore_of(form, folder)
        memory = machine.HeldMemory(held * rows * (2 if form == _OWN else 1))
        memory.give_back(held * rows)
        before = machine.resident_bytes("VmRSS")
        machine.reset_peak()
        samples = {form: timing.sample(call, 1)}
        now = machine.resident_bytes("VmRSS")
        above = max(0, machine.resident_bytes("VmHWM") - now)
        self.check(rows)
        if form == _RAW:
            samples["save of raw"] = timing.sample(lambda: self._save_raw(folder / "again"), 1)
        if form == _OWN:
            samples["save"] = timing.sample(lambda: self.save(folder / "again"), 1)
            memory.give_back(held * rows)
            samples["over its rows"] = timing.sample(call, 1)
        return {"samples": samples, "above": above, "table": now - before}

    def measure_servers(self, folder: pathlib.Path, saved: str, rows: int, held: int) -> dict:
        """Measures a restore and a save of tables on servers."""
        memory = machine.HeldMemory(held * rows)
        memory.give_back(memory.size)
        samples = {"restore": timing.sample(lambda: self.restore(folder / saved), 1)}
        self.check(rows)
        samples["save"] = timing.sample(lambda: self.save(folder / "again"), 1)
        return {"samples": samples}


def _start_servers(count: int, config: Any) -> str:
    """Starts parameter servers and a worker in this process; returns the worker's target."""
    import tensorflow as tf

    cluster = {
        job: [f"127.0.0.1:{servers.free_port()}" for _ in range(tasks)]
        for job, tasks in (("ps", count), ("worker", 1))
    }
    started = [
        tf.compat.v1.train.Server(cluster, job, task, config=config)
        for job, addresses in cluster.items()
        for task in range(len(addresses))
    ]
    return started[-1].target


def _main(stage: str, form: str, folder: str, rows: str, dim: str, threads: str, held: str) -> None:
    """A process: makes the checkpoints, or restores one. Prints JSON."""
    import tensorflow as tf

    import sparse_operation_kit as sok

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    config = v1.ConfigProto(intra_op_parallelism_threads=int(threads))
    count = int(stage[len(_SERVERS) :]) if stage.startswith(_SERVERS) else 0
    target = _start_servers(count, config) if count else ""
    session = v1.Session(target, config=config)
    setter = v1.train.replica_device_setter(ps_tasks=count, worker_device="/job:worker/task:0")
    with v1.device(setter if count else None):
        session.run(sok.Init(global_batch_size=1, seed=1))
        program = _Program(session, int(dim))
    done: dict | None = None
    if stage == "make":
        program.make(pathlib.Path(folder), int(rows))
    elif count:
        done = program.measure_servers(pathlib.Path(folder), form, int(rows), int(held))
    else:
        done = program.measure(form, pathlib.Path(folder), int(rows), int(held))
    print(json.dumps(done))


if __name__ == "__main__":
    _main(*sys.argv[1:])
