"""Measures forward lookups and training steps of SOK and other libraries, each in its own process.

`--help` lists the flags; README.md explains the tables.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from bench import axes, machine
from bench.engine_process import find_program
from bench.peers import environments, measure, report
from bench.peers.catalog import LIBRARIES, OTHER, OURS

_PEERS = tuple(name for name in LIBRARIES if name not in (OURS, OTHER)) + (measure.ENGINE,)
_OF_OTHER = (OTHER, measure.OTHER_ENGINE)
_WHATS = ("forward", "step")


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parser().parse_args(arguments)
    peers = [name for name in flags.peers if _is_there(name, flags.environments)]
    if flags.other is not None:
        peers += _OF_OTHER
    rows: list[report.Row] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = measure.Settings(
            tuple(peers), flags.what, flags.environments, pathlib.Path(folder), flags.other
        )
        for threads in flags.threads:
            for chosen in axes.from_flags(flags):
                for tables in chosen.all_tables():
                    measure.say(
                        f"{threads} threads, batch {chosen.batch}, Zipf {chosen.exponent:g}, {tables}"
                    )
                    rows += measure.run(chosen, tables, threads, settings)
    if flags.json is not None:
        report.write_json(flags.json, machine.describe(), rows)
    if flags.plot is not None:
        from bench.peers import plot

        plot.write(flags.plot, rows)
    print(f"{report.tables(rows)}\n\n{report.semantics(rows)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    axes.add_flags(parser, optimizers=("lazy_adam", "rowwise_adagrad"))
    add = parser.add_argument
    for name, known in (("--peers", _PEERS), ("--what", _WHATS)):
        names = axes.list_of(axes.one_of("name", known))
        add(name, type=names, default=known, help="some of " + ",".join(known))
    add(
        "--environments",
        type=pathlib.Path,
        default=environments.default_folder(),
        help="folder of the peers' environments",
    )
    add(
        "--other",
        type=_built_checkout,
        default=None,
        help=f"another checkout, built, to measure as {' and '.join(_OF_OTHER)}",
    )
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    add("--plot", type=pathlib.Path, default=None, help="picture to draw, .png or .svg")
    return parser


def _built_checkout(text: str) -> pathlib.Path:
    folder = pathlib.Path(text).absolute()
    for part in ("tools/site", "benchmarks/engine/group_benchmark"):
        if not (environments.built_by(folder) / part).exists():
            raise argparse.ArgumentTypeError(
                f"{text} has no bazel-bin/{part}: build it there with "
                "`bazel build //tools:site //benchmarks/engine:group_benchmark`"
            )
    return folder


def _is_there(name: str, folder: pathlib.Path) -> bool:
    if name == measure.ENGINE:
        if find_program() is not None:
            return True
        measure.say("engine is left out: build it with `bazel build //benchmarks/engine:group_benchmark`.")
        return False
    if environments.interpreter(LIBRARIES[name], folder) is not None:
        return True
    measure.say(f"{name} is left out: it has no environment in {folder}. benchmarks/setup_peers.sh makes it.")
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
