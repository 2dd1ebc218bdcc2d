"""The time and memory of saving and restoring a table, compared with the disk's speed.

For each size, a process trains a table of that many bytes (weights and LazyAdam's slots) and saves it with
tf.compat.v1.train.Saver; another process restores it. `disk` is `dd` in the same run, which writes and syncs,
or reads, as many bytes without the page cache. Files are dropped from the cache before they are read. `new
memory` is a process that writes to as many bytes of new memory, which a restore must also do. `MiB above` is
the peak of the process's resident set, less its size before a save or after a restore.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np

from bench import flags, jobs, machine, processes
from bench.report import Result
from bench.timing import Timing

FLAGS = {
    "gib": flags.Flag(flags.number(float, 1e-9), "GiB of rows with their slots", (1.0, 4.0, 8.0)),
    "dim": 64,
    "folder": flags.Flag(str, "where to write; by default the system's folder for temporary files"),
}
_KEYS_PER_STEP = 200_000
# A row has its weights and two slots of the same size.
_FLOATS_PER_WEIGHT = 3
_MIB = 1 << 20


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures one size."""

    def run(stage: str) -> dict:
        return processes.output_of_module("workloads.checkpoints", stage, folder, point.gib, point.dim)

    with tempfile.TemporaryDirectory(prefix="sok-checkpoint-", dir=point.folder) as name:
        folder = pathlib.Path(name)
        saved = run("save")
        blocks = -(-saved["bytes"] // _MIB)
        dd = ["dd", f"bs={_MIB}"]
        written = _seconds(
            [*dd, "if=/dev/zero", f"of={folder}/dd", f"count={blocks}", "oflag=direct", "conv=fsync"]
        )
        machine.drop_from_cache(folder)
        read = _seconds([*dd, f"if={folder}/dd", "of=/dev/null", "iflag=direct"])
        (folder / "dd").unlink()
        touched = machine.touch(blocks * _MIB).wall / 1e3
        restored = run("restore")
    results = []
    for what, done, others in (
        ("save", saved, {"disk": written}),
        ("restore", restored, {"disk": read, "new memory": touched}),
    ):
        seconds = {what: done["seconds"], **others}
        timings = {name: Timing(taken * 1e3, taken * 1e3, 0) for name, taken in seconds.items()}
        counts = {"rows": float(saved["rows"]), "MiB above": done["above"] / _MIB}
        question = {"GiB of rows": point.gib, "what": what}
        results.append(Result(question, timings, what, counts, saved["bytes"] / 1e9, "GB"))
    return results


def _seconds(command: Sequence[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def _main(stage: str, folder: str, gib: str, dim: str) -> None:
    """A process: trains and saves a table, or restores it. Prints JSON."""
    import tensorflow as tf

    import sparse_operation_kit as sok

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    rows = int(float(gib) * 2**30 / (4 * _FLOATS_PER_WEIGHT * int(dim)))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(sok.Init(global_batch_size=1, seed=1))
        keys = tf.compat.v1.placeholder(tf.int64, [None])
        table = sok.EmbeddingVariable("table", int(dim))
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, keys))
        step = sok.tf.keras.optimizers.LazyAdamOptimizer(0.1).minimize(loss)
        saver = tf.compat.v1.train.Saver()
        path = str(pathlib.Path(folder, "model"))
        session.run(tf.compat.v1.global_variables_initializer())
        if stage == "save":
            for first in range(0, rows, _KEYS_PER_STEP):
                numbers = np.arange(first, min(first + _KEYS_PER_STEP, rows))
                session.run(step, {keys: jobs.scattered_keys(numbers)})
            before = machine.resident_bytes("VmRSS")
            seconds = _timed(lambda: saver.save(session, path, write_meta_graph=False))
        else:
            seconds = _timed(lambda: saver.restore(session, path))
            before = machine.resident_bytes("VmRSS")
        above = max(0, machine.resident_bytes("VmHWM") - before)
        assert session.run(table.size()) == rows
    files = filter(pathlib.Path.is_file, pathlib.Path(folder).rglob("*"))
    result = {"seconds": seconds, "above": above, "rows": rows}
    print(json.dumps({**result, "bytes": sum(file.stat().st_size for file in files)}))


def _timed(work: Callable[[], object]) -> float:
    machine.reset_peak()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    _main(*sys.argv[1:])
