"""Measures lookups and training steps of a group of features: SOK, TensorFlow, and the bare engine.

`--help` lists the flags; README.md explains the table.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from bench import axes, engine_process, machine, report  # noqa: E402


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parser().parse_args(arguments)
    chosen = axes.from_flags(flags)
    with tempfile.TemporaryDirectory() as folder:
        if len(flags.threads) == 1:
            rows = _run(chosen, pathlib.Path(folder), flags.engine, flags.device)
        else:
            rows = _run_children(flags.threads, pathlib.Path(folder), arguments)
    if flags.json is not None:
        report.write_json(flags.json, {**machine.describe(), "device": flags.device}, rows)
    if not flags.child:
        print(report.table(rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    axes.add_flags(parser)
    parser.add_argument(
        "--no-engine", dest="engine", action="store_false", help="do not measure the bare engine"
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "gpu"],
        default="cpu",
        help="the device of both sides (default: cpu); with gpu, the bare CPU engine is not measured",
    )
    parser.add_argument("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def _run_children(threads: Sequence[int], folder: pathlib.Path, arguments: Sequence[str]) -> list[report.Row]:
    # TensorFlow has one thread pool per process, so each number of threads needs a process.
    rows = []
    for number in threads:
        path = folder / f"{number}.json"
        own = ["--threads", str(number), "--json", str(path), "--child"]
        subprocess.run([sys.executable, __file__, *arguments, *own], check=True)
        rows += report.read_rows(path)
    return rows


def _run(
    all_chosen: Sequence[axes.Axes], folder: pathlib.Path, with_engine: bool, device: str
) -> list[report.Row]:
    # Imported here, because --help and the parent of several processes do not need TensorFlow.
    import tensorflow as tf

    from bench import group_run

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    on_gpu = device == "gpu"
    if on_gpu and not tf.config.experimental.list_physical_devices("GPU"):
        sys.exit("--device gpu: TensorFlow finds no GPU, or has no plugin for it")
    os.environ["SOK_DEVICE"] = device  # of our tables
    with_engine = with_engine and not on_gpu

    program = engine_process.find_program() if with_engine else None
    if with_engine and program is None:
        print(
            "The bare engine is left out: build it with `bazel build //benchmarks/engine:group_benchmark`.",
            file=sys.stderr,
        )
    rows = []
    for chosen in all_chosen:
        for tables in chosen.all_tables():
            print(f"threads {chosen.threads[0]}, {tables}", file=sys.stderr, flush=True)
            rows += group_run.run(chosen, tables, program, folder, on_gpu)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
