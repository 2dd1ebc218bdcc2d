"""Measures training steps with lookups a step ahead (`sok.LookupPrefetch`), and the same steps without.

Starts the ranks on this machine. `--help` lists the flags; README.md explains the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import sys
from collections.abc import Sequence

from bench import axes, launch_ranks, rank_flags


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    parser, for_the_ranks = _parser()
    flags = parser.parse_args(arguments)
    own = {name: getattr(flags, name) for name in for_the_ranks}
    machine, rows = {}, []
    print("| ranks | batch | hidden | ids | plain, ms | ahead, ms | plain / ahead |")
    print("|---|---|---|---|---|---|---|")
    for ranks, batch, hidden in itertools.product(flags.ranks, flags.batch, flags.hidden):
        varied = {"batch": batch, "hidden": hidden}
        found = launch_ranks.run(
            "bench.prefetch_program", {**own, **varied}, flags.transport, flags.cycle_time, ranks
        )
        machine = found.pop("machine")
        rows.append({"ranks": ranks, **varied, **found})
        print(_line(rows[-1]), flush=True)
    if flags.json is not None:
        flags.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", "utf-8")
    return 0


def _line(row: dict) -> str:
    plain, ahead = (row["timings"][name] for name in ("plain", "ahead"))
    cells = [row["ranks"], row["batch"], row["hidden"], f"{row['ids']:.0f}"]
    cells += [f"{timing['median']:.2f} ({timing['minimum']:.2f})" for timing in (plain, ahead)]
    cells.append(f"{plain['median'] / ahead['median']:.2f}")
    return "| " + " | ".join(map(str, cells)) + " |"


def _parser() -> tuple[argparse.ArgumentParser, tuple[str, ...]]:
    """The parser, and the names of the flags that are passed on to ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    counts = axes.list_of(axes.at_least_one)
    add("--ranks", type=counts, default=(1, 2), help="numbers of ranks")
    add("--batch", type=counts, default=(512, 4096), help="samples per step over all ranks")
    add("--hidden", type=counts, default=(64, 512), help="units of the model's hidden layer")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    for_the_ranks = rank_flags.add(
        parser,
        transport="mpi",
        cycle_time=1.0,
        features=26,
        hotness=1,
        dim=16,
        rows=2_600_000,
        zipf=1.05,
        optimizer="adagrad",
        batches=4,
        rounds=7,
        calls=20,
        seed=1,
    )
    return parser, for_the_ranks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
