"""What opening a SavedModel with this library's ops takes, with tables that are read and that are mapped.

Processes take turns. Each opens the model, of one table, in a session, and then looks up random keys: all of
them are in the page cache, or none is. `private MB` is the memory that the process does not share.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time

import numpy as np

from bench import flags, jobs, machine, processes
from bench.report import Result
from bench.timing import Sample, Timing

FLAGS = {
    "mb": flags.Flag(flags.number(), "MB of weights", (1024,)),
    "dim": (64, 16),
    "cache": flags.Flag(flags.one_of("state", ("warm", "cold")), "of the files", ("warm", "cold")),
    **dict(batch=65536, rounds=5),
    "folder": flags.Flag(str, "where to write; by default the system's folder for temporary files"),
}
TOGETHER = ("cache",)
_SIDES = {"mapped": "1", "read": "0"}
_KEYS_AT_ONCE = 200_000


def measure(point: argparse.Namespace) -> list[Result]:
    """Measures a model, in each state of the page cache."""
    rows = int(point.mb * 1e6 / (4 * point.dim))
    with tempfile.TemporaryDirectory(prefix="sok-open-", dir=point.folder) as folder:
        model = pathlib.Path(folder, "model")
        _run("write", model, rows, point, "0")
        return [_measure_opening(model, rows, cache, point) for cache in point.cache]


def _measure_opening(model: pathlib.Path, rows: int, cache: str, point: argparse.Namespace) -> Result:
    opened: dict[str, list[dict]] = {side: [] for side in _SIDES}
    for _ in range(point.rounds):
        for side, maps in _SIDES.items():
            for path in filter(pathlib.Path.is_file, model.rglob("*")):
                path.read_bytes() if cache == "warm" else machine.drop_from_cache(path)
            opened[side].append(_run("open", model, rows, point, maps))
    timings = {side: Timing.of([Sample(*one["open"]) for one in of_side]) for side, of_side in opened.items()}
    counts = {}
    for side, of_side in opened.items():
        counts[f"{side}: private MB"] = min(one["private"] for one in of_side) / 1e6
        counts[f"{side}: ns an id, first"] = float(np.median([one["first"] for one in of_side]))
        counts[f"{side}: ns an id"] = float(np.median([one["later"] for one in of_side]))
    question = {"MB": point.mb, "dim": point.dim, "rows": rows, "files": cache}
    return Result(question, timings, "mapped", counts)


def _run(stage: str, model: pathlib.Path, rows: int, point: argparse.Namespace, maps: str) -> dict:
    arguments = (stage, model, rows, point.dim, point.batch)
    return processes.output_of_module("workloads.open_tables", *arguments, SOK_MAP_TABLES=maps)


def _main(stage: str, model: str, rows: int, dim: int, batch: int) -> None:
    """A process: writes the model, or opens it. Prints JSON."""
    import tensorflow as tf

    import sparse_operation_kit as sok

    v1 = tf.compat.v1
    v1.logging.set_verbosity(v1.logging.ERROR)
    with tf.Graph().as_default(), v1.Session() as session:
        print(
            json.dumps(
                _write(session, v1, sok, model, rows, dim)
                if stage == "write"
                else _open(session, v1, model, rows, batch)
            )
        )


def _write(session, v1, sok, model: str, rows: int, dim: int) -> dict:
    import tensorflow as tf

    session.run(sok.Init(global_batch_size=1, seed=1))
    table = sok.EmbeddingVariable("table", dim, initializer=0.0)
    ids = v1.placeholder(tf.int64, [None], "ids")
    rows_of_ids = tf.nn.embedding_lookup(table, ids)
    keys, values = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.float32, [None, dim])
    assign = table.assign_rows(keys, values)
    session.run(v1.global_variables_initializer())
    rng = np.random.default_rng(1)
    for first in range(0, rows, _KEYS_AT_ONCE):
        numbers = np.arange(first, min(first + _KEYS_AT_ONCE, rows))
        session.run(
            assign,
            {
                keys: jobs.scattered_keys(numbers),
                values: rng.standard_normal([len(numbers), dim], np.float32),
            },
        )
    v1.saved_model.simple_save(session, model, {"ids": ids}, {"rows": rows_of_ids})
    return {}


def _open(session, v1, model: str, rows: int, batch: int) -> dict:
    wall, cpu = time.perf_counter(), time.process_time()
    loaded = v1.saved_model.load(session, ["serve"], model)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    signature = loaded.signature_def["serving_default"]
    look_up = session.make_callable(signature.outputs["rows"].name, feed_list=[signature.inputs["ids"].name])
    rng = np.random.default_rng(2)
    took = []
    for _ in range(40):
        keys = jobs.scattered_keys(rng.integers(0, rows, batch))
        begin = time.process_time()
        assert look_up(keys).any(1).all()
        took.append((time.process_time() - begin) * 1e9 / batch)
    private = machine.resident_bytes("RssAnon")
    return {
        "open": [wall * 1e3, cpu * 1e3],
        "private": private,
        "first": took[0],
        "later": float(np.median(took[20:])),
    }


if __name__ == "__main__":
    _main(*sys.argv[1:3], *map(int, sys.argv[3:]))
