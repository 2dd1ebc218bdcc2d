"""One process of benchmarks/checkpoints.py: trains and saves a table, or restores it. Prints JSON."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import sparse_operation_kit as sok
from bench import disk

_KEYS_PER_STEP = 200_000
# A row has its weights and two slots of the same size.
_FLOATS_PER_WEIGHT = 3


def main(arguments: Sequence[str]) -> None:
    """Runs one stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("save", "restore"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gib", type=float, required=True)
    parser.add_argument("--dim", type=int, required=True)
    flags = parser.parse_args(arguments)
    rows = int(flags.gib * 2**30 / (4 * _FLOATS_PER_WEIGHT * flags.dim))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(sok.Init(global_batch_size=1, seed=1))
        keys = tf.compat.v1.placeholder(tf.int64, [None])
        table = sok.EmbeddingVariable("table", flags.dim)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, keys))
        step = sok.tf.keras.optimizers.LazyAdamOptimizer(0.1).minimize(loss)
        saver = tf.compat.v1.train.Saver()
        path = str(flags.folder / "model")
        session.run(tf.compat.v1.global_variables_initializer())
        if flags.stage == "save":
            result = _save(session, lambda part: session.run(step, {keys: part}), saver, path, rows)
            result["bytes"] = disk.bytes_in(flags.folder)
        else:
            result = _restore(session, saver, path)
            assert session.run(table.size()) == rows
    print(json.dumps({**result, "rows": rows}))


def _save(
    session: tf.compat.v1.Session,
    train: Callable[[np.ndarray], object],
    saver: tf.compat.v1.train.Saver,
    path: str,
    rows: int,
) -> dict:
    for first in range(0, rows, _KEYS_PER_STEP):
        # Keys from the whole int64 range; multiplying by an odd number keeps them distinct.
        positions = np.arange(first, min(first + _KEYS_PER_STEP, rows), dtype=np.uint64)
        train((positions * np.uint64(0x9E3779B97F4A7C15)).view(np.int64))
    before = _resident("VmRSS")
    seconds = _timed(lambda: saver.save(session, path, write_meta_graph=False))
    return {"seconds": seconds, "above": _resident("VmHWM") - before}


def _restore(session: tf.compat.v1.Session, saver: tf.compat.v1.train.Saver, path: str) -> dict:
    seconds = _timed(lambda: saver.restore(session, path))
    return {"seconds": seconds, "above": _resident("VmHWM") - _resident("VmRSS")}


def _timed(work: Callable[[], object]) -> float:
    # Resets the peak of the resident set (VmHWM) to its present size.
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _resident(field: str) -> int:
    """Bytes of the process's resident set: the present size (VmRSS) or the peak (VmHWM)."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith(field + ":")]
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main(sys.argv[1:])
