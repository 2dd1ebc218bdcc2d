"""A group of features over ranks, beside the same model with a plain alltoall for each feature.

Starts the ranks itself, on this machine. `--help` lists the flags, README.md says how to read the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence

from bench import launch_ranks, ranks_report

_FOR_THE_RANKS = (
    "features",
    "batch",
    "dim",
    "rows",
    "zipf",
    "optimizer",
    "batches",
    "rounds",
    "calls",
    "seed",
)


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parser().parse_args(arguments)
    machine, rows = {}, []
    for transport in flags.transport.split(","):
        for cycle_time in flags.cycle_time.split(","):
            for ranks in flags.ranks.split(","):
                print(f"{transport}, cycle time {cycle_time} ms, {ranks} ranks", file=sys.stderr, flush=True)
                result = _launch(flags, transport, float(cycle_time), int(ranks))
                machine = result["machine"]
                rows.append(ranks_report.Row.of(result["row"]))
    if flags.json is not None:
        content = {"machine": machine, "rows": [dataclasses.asdict(row) for row in rows]}
        flags.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if flags.plot is not None:
        from bench import ranks_plot

        ranks_plot.write(flags.plot, rows)
    print(ranks_report.table(rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--ranks", default="1,2,4", help="numbers of ranks")
    add("--transport", default="mpi,gloo", help="mpi (mpirun), gloo (horovodrun)")
    add("--cycle_time", default="1,0.1", help="HOROVOD_CYCLE_TIME, ms")
    add("--features", type=int, default=26, help="features, each with a table of its own")
    add("--batch", type=int, default=4096, help="samples of a step over all ranks")
    add("--dim", type=int, default=16, help="floats of a row")
    add("--rows", type=int, default=2_600_000, help="rows of all tables together")
    add("--zipf", type=float, default=1.05, help="how skewed ids are: the exponent of Zipf's law")
    add("--optimizer", default="adagrad", help="lazy_adam, adagrad or sgd")
    add("--batches", type=int, default=4, help="batches of ids that the steps of a rank rotate over")
    add("--rounds", type=int, default=7, help="interleaved rounds that count")
    add("--calls", type=int, default=10, help="steps of each contender in a round")
    add("--seed", type=int, default=1, help="of ids and rows")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    add("--plot", type=pathlib.Path, default=None, help="picture to draw, .png or .svg")
    return parser


def _launch(flags: argparse.Namespace, transport: str, cycle_time: float, ranks: int) -> dict:
    own = {name: getattr(flags, name) for name in _FOR_THE_RANKS}
    own.update(cycle_time=cycle_time, transport=transport)
    return launch_ranks.run("bench.rank_program", own, transport, cycle_time, ranks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
