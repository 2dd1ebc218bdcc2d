"""Compares two ways in which owners can answer lookups of bags: with rows of distinct ids, or sums of bags.

Starts the ranks on this machine, for bags of several lengths. Prints the bytes that rank 0 sends in a step,
and the milliseconds of a step (lookup, gradient, Adagrad): the median, followed by the minimum. `--help`
lists the flags.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench import axes, launch_ranks, rank_flags


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    parser, for_the_ranks = _parser()
    flags = parser.parse_args(arguments)
    print("| ids per bag | unique of ids | MB sent, rows | sums | ms, rows | sums | rows / sums |")
    print("|---|---|---|---|---|---|---|")
    for hotness in flags.hotness:
        own = {**{name: getattr(flags, name) for name in for_the_ranks}, "hotness": hotness}
        found = launch_ranks.run(
            "bench.rows_or_sums_program", own, flags.transport, flags.cycle_time, flags.ranks
        )
        rows, sums = (found["timings"][mode] for mode in ("rows", "sums"))
        cells = [str(hotness), f"{found['unique'] / found['ids']:.2f}"]
        cells += [f"{found['sent'][mode] / 1e6:.2f}" for mode in ("rows", "sums")]
        cells += [f"{timing['median']:.1f} ({timing['minimum']:.1f})" for timing in (rows, sums)]
        cells.append(f"{rows['median'] / sums['median']:.2f}")
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0


def _parser() -> tuple[argparse.ArgumentParser, tuple[str, ...]]:
    """The parser, and the names of the flags that are passed on to ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=axes.at_least_one, default=2, help="number of ranks")
    hotness = axes.list_of(axes.at_least_one)
    parser.add_argument("--hotness", type=hotness, default=(2, 8, 16, 32, 64), help="ids per bag, on average")
    for_the_ranks = rank_flags.add(
        parser,
        transport="mpi",
        cycle_time=1.0,
        features=4,
        batch=2048,
        dim=16,
        rows=800_000,
        zipf=1.05,
        batches=4,
        rounds=7,
        calls=5,
        seed=1,
    )
    return parser, for_the_ranks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
