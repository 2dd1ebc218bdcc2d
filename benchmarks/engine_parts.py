"""Measures parts of the engine: dedup compared with tf.unique, index lookups and gathers with bare loops.

`--help` lists the flags; README.md explains the table. Needs `bazel build
//benchmarks/engine:parts_benchmark`.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Callable, Sequence

from bench import axes, machine, parts, parts_report
from bench.engine_process import find_program


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parser().parse_args(arguments)
    program = find_program("parts_benchmark")
    if program is None:
        print("Build it first: `bazel build //benchmarks/engine:parts_benchmark`.", file=sys.stderr)
        return 1
    rows: list[parts_report.Row] = []
    with tempfile.TemporaryDirectory() as folder:
        run = parts.Run(program, pathlib.Path(folder), flags.rounds, flags.seed)
        for part in flags.part:
            rows += _MEASURES[part](run, flags)
    if flags.json is not None:
        parts_report.write_json(flags.json, machine.describe(), rows)
    if flags.plot is not None:
        from bench import ratio_plot

        ratio_plot.write(flags.plot, [row.goal() for row in rows])
    print(parts_report.table(rows))
    return 0


def _dedup(run: parts.Run, flags: argparse.Namespace) -> list[parts_report.Row]:
    return [
        row
        for ids in flags.ids
        for exponent in flags.zipf
        for row in run.dedup(ids, flags.distinct, exponent, flags.threads)
    ]


def _index(run: parts.Run, flags: argparse.Namespace) -> list[parts_report.Row]:
    return [run.index(keys) for keys in flags.keys]


def _gather(run: parts.Run, flags: argparse.Namespace) -> list[parts_report.Row]:
    return [
        row
        for dim in flags.dim
        for table_mb in flags.table_mb
        for exponent in flags.gather_zipf
        for row in run.gather(dim, int(table_mb * 1e6), flags.hotness, exponent, flags.threads)
    ]


_MEASURES: dict[str, Callable[[parts.Run, argparse.Namespace], list[parts_report.Row]]] = {
    "dedup": _dedup,
    "index": _index,
    "gather": _gather,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    count, skew = axes.list_of(axes.at_least_one), axes.list_of(axes.at_least_zero)
    part = axes.one_of("part", tuple(_MEASURES))
    add("--part", type=axes.list_of(part), default=tuple(_MEASURES), help="some of " + ",".join(_MEASURES))
    add("--ids", type=count, default=(4 << 10, 106 << 10, 1 << 20), help="dedup: ids per batch")
    add("--distinct", type=axes.at_least_one, default=10_000_000, help="dedup: ids are drawn from so many")
    add("--zipf", type=skew, default=(1.05, 1.2, 0.0), help="dedup: Zipf exponent of ids; 0 is uniform")
    add(
        "--keys", type=count, default=(10_000, 100_000, 1_000_000, 10_000_000), help="index: ids in the index"
    )
    add("--dim", type=count, default=(16, 64), help="gather: floats per row")
    add("--table_mb", type=axes.list_of(axes.positive), default=(500.0, 3000.0), help="gather: MB of rows")
    add("--hotness", type=axes.at_least_one, default=10, help="gather: ids per pooled bag, on average")
    add("--gather_zipf", type=skew, default=(1.05,), help="gather: Zipf exponent of ids; 0 is uniform")
    add("--threads", type=count, default=(1, 2), help="threads of dedup and gather; index has one")
    add("--rounds", type=axes.at_least_one, default=7, help="interleaved rounds, without the warm-up")
    add("--seed", type=int, default=1, help="seed of ids")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    add("--plot", type=pathlib.Path, default=None, help="picture to draw, .png or .svg")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
