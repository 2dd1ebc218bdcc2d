"""Restoring one table: beside saving it, and from the checkpoints of other systems beside our own.

A process trains a table with LazyAdam and saves it; the command line and TensorFlow's SaveV2 write the same
rows and slots in other systems' forms. Then, in rounds, a process for each form restores it into an empty
table. That of our own form also saves the table again, and restores it once more over its rows. Files are
dropped from the page cache before they are read. `new memory` is a process that writes to as many bytes of
new memory as the table has. `MiB above` is the peak of the process's resident set, less its size afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import numpy as np

from bench import flags, machine, processes, report, timing
from bench.report import Result

_OWN = "own"
# Of the command line's `export`.
_EXPORTED = ("deeprec", "sok2", "variable")
_FORMS = (_OWN, *_EXPORTED, "recommenders_addons")
FLAGS = {
    "rows": flags.Flag(flags.number(), "rows of the table", (10_000_000,)),
    "dim": 16,
    "rounds": 3,
    "threads": 2,
    "forms": flags.Flag(flags.one_of("form", _FORMS), "some of " + ",".join(_FORMS), _FORMS),
    "other": flags.Flag(pathlib.Path, "another built checkout, whose saves and restores are measured too"),
    "folder": flags.Flag(str, "where to write; by default the system's folder for temporary files"),
}
TOGETHER = ("forms",)
_KEYS_PER_STEP = 200_000


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one size."""
    forms = list(dict.fromkeys((_OWN, *point.forms)))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sok-restores-", dir=point.folder))
    samples: dict[str, list[timing.Sample]] = {}
    above: dict[str, float] = {}
    try:
        _run("make", _OWN, point, folder)
        for form in set(forms) & set(_EXPORTED):
            _export(form, point, folder)
        for _ in range(point.rounds):
            for form, other in [(form, other) for form in forms for other in (point.other, None)]:
                if other is None or form == _OWN:
                    done = _run("restore", form, point, folder, other)
                    for what, sample in done["samples"].items():
                        name = what if other is None else f"{what}, other checkout"
                        samples.setdefault(name, []).append(timing.Sample(*sample))
                    if other is None:
                        above[form] = max(above.get(form, 0), done["above"] / 2**20)
                    if other is None and form == _OWN:
                        samples.setdefault("new memory", []).append(machine.touch(done["table"]))
    finally:
        shutil.rmtree(folder)
    timings = {what: timing.Timing.of(taken) for what, taken in samples.items()}
    return [Result({"rows": point.rows, "dim": point.dim}, timings, _OWN, above)]


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


def _run(
    stage: str, form: str, point: argparse.Namespace, folder: pathlib.Path, other: pathlib.Path | None = None
) -> dict:
    for path in filter(pathlib.Path.is_file, (folder / form).rglob("*")):
        machine.drop_from_cache(path)
    numbers = [str(number) for number in (point.rows, point.dim, point.threads)]
    command = [sys.executable, "-m", "workloads.restores", stage, form, str(folder), *numbers]
    path = {}
    if other is not None:
        site = str(other.absolute() / "bazel-bin" / "tools" / "site")
        path = {"PYTHONPATH": os.pathsep.join([site, str(processes.BENCHMARKS)])}
    return json.loads(_output(command, **path).splitlines()[-1])


def _export(form: str, point: argparse.Namespace, folder: pathlib.Path) -> None:
    saved = str(folder / _OWN / "model")
    program = [sys.executable, "-m", "sparse_operation_kit.checkpoint", "export", saved]
    rows = ["--rows", str(point.rows)] if form == "variable" else []
    _output([*program, "--format", form, "--to", str(folder / form), *rows])


def _output(command: list[str], **variables: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=processes.environment(**variables))
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return done.stdout


class _Program:
    """A session with the table."""

    def __init__(self, dim: int, threads: int) -> None:
        import tensorflow as tf

        import sparse_operation_kit as sok

        v1 = tf.compat.v1
        v1.disable_eager_execution()
        v1.logging.set_verbosity(v1.logging.ERROR)
        self._session = v1.Session(config=v1.ConfigProto(intra_op_parallelism_threads=threads))
        self._session.run(sok.Init(global_batch_size=1, seed=1))
        self._keys = v1.placeholder(tf.int64, [None])
        self._table = sok.EmbeddingVariable("table", dim)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(self._table, self._keys))
        self._optimizer = sok.tf.keras.optimizers.LazyAdamOptimizer(0.1)
        self._step = self._optimizer.minimize(loss)
        self._saver = v1.train.Saver([self._table])
        self._session.run(v1.global_variables_initializer())
        self._size = self._table.size()

    def make(self, folder: pathlib.Path, rows: int) -> None:
        """Trains rows of the keys [0, rows), in random order, and writes the forms that no command writes."""
        import tensorflow as tf

        keys = np.random.default_rng(1).permutation(rows)
        for first in range(0, rows, _KEYS_PER_STEP):
            self._session.run(self._step, {self._keys: keys[first : first + _KEYS_PER_STEP]})
        self.save(folder / _OWN)
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

    def save(self, folder: pathlib.Path) -> None:
        """Saves to a folder."""
        folder.mkdir(exist_ok=True)
        self._saver.save(self._session, str(folder / "model"), write_meta_graph=False)

    def restore(self, form: str, folder: pathlib.Path, rows: int) -> dict:
        """Measures restores of one form, and of our own a save."""
        from sparse_operation_kit import experiment

        restored = str(folder / form / "model")
        call = lambda: self._saver.restore(self._session, restored)  # noqa: E731
        if form == "sok2":
            load = experiment.load(str(folder / form), self._table, self._optimizer)
            call = lambda: self._session.run(load)  # noqa: E731
        before = machine.resident_bytes("VmRSS")
        # Resets the peak of the resident set (VmHWM) to its present size.
        pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        samples = {form: timing.sample(call, 1)}
        now = machine.resident_bytes("VmRSS")
        above = max(0, machine.resident_bytes("VmHWM") - now)
        assert self._session.run(self._size) == rows
        if form == _OWN:
            samples["save"] = timing.sample(lambda: self.save(folder / "again"), 1)
            samples["over its rows"] = timing.sample(call, 1)
        return {"samples": samples, "above": above, "table": now - before}


def _main(stage: str, form: str, folder: str, rows: str, dim: str, threads: str) -> None:
    """A process: makes the checkpoints, or restores one. Prints JSON."""
    program = _Program(int(dim), int(threads))
    done: dict | None = None
    if stage == "make":
        program.make(pathlib.Path(folder), int(rows))
    else:
        done = program.restore(form, pathlib.Path(folder), int(rows))
    print(json.dumps(done))


if __name__ == "__main__":
    _main(*sys.argv[1:])
