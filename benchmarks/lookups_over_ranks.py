"""Measures a group of features over ranks, compared with a plain alltoall for each feature.

Starts the ranks on this machine. `--help` lists the flags; README.md explains the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence

from bench import axes, launch_ranks, rank_flags, ranks_report


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    parser, for_the_ranks = _parser()
    flags = parser.parse_args(arguments)
    own = {name: getattr(flags, name) for name in for_the_ranks}
    machine, rows = {}, []
    for transport in flags.transport:
        for cycle_time in flags.cycle_time:
            for ranks in flags.ranks:
                print(
                    f"{transport}, cycle time {cycle_time:g} ms, {ranks} ranks", file=sys.stderr, flush=True
                )
                launch = {"transport": transport, "cycle_time": cycle_time}
                result = launch_ranks.run("bench.rank_program", {**own, **launch}, **launch, ranks=ranks)
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


def _parser() -> tuple[argparse.ArgumentParser, tuple[str, ...]]:
    """The parser, and the names of the flags that are passed on to ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    transport = axes.list_of(axes.one_of("transport", ("mpi", "gloo")))
    add("--ranks", type=axes.list_of(axes.at_least_one), default=(1, 2, 4), help="numbers of ranks")
    add("--transport", type=transport, default=("mpi", "gloo"), help="mpi (mpirun), gloo (horovodrun)")
    add("--cycle_time", type=axes.list_of(axes.positive), default=(1.0, 0.1), help="HOROVOD_CYCLE_TIME, ms")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    add("--plot", type=pathlib.Path, default=None, help="picture to draw, .png or .svg")
    for_the_ranks = rank_flags.add(
        parser,
        features=26,
        batch=4096,
        dim=16,
        rows=2_600_000,
        zipf=1.05,
        optimizer="adagrad",
        batches=4,
        rounds=7,
        calls=10,
        seed=1,
    )
    return parser, for_the_ranks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
