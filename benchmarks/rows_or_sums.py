"""What owners should answer lookups of bags with: rows of distinct ids, or sums of bags.

Starts the ranks itself, on this machine, for bags of several lengths. Prints bytes that rank 0 sends in a
step and milliseconds of a step (lookup, gradient, Adagrad), median with the minimum behind. `--help` lists
the flags.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench import launch_ranks

_FOR_THE_RANKS = ("features", "batch", "dim", "rows", "zipf", "batches", "rounds", "calls", "seed")


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parser().parse_args(arguments)
    print("| ids per bag | unique of ids | MB sent, rows | sums | ms, rows | sums | rows / sums |")
    print("|---|---|---|---|---|---|---|")
    for hotness in flags.hotness.split(","):
        own = {name: getattr(flags, name) for name in _FOR_THE_RANKS} | {"hotness": hotness}
        found = launch_ranks.run(
            "bench.rows_or_sums_program", own, flags.transport, flags.cycle_time, flags.ranks
        )
        rows, sums = (found["timings"][mode] for mode in ("rows", "sums"))
        cells = [hotness, f"{found['unique'] / found['ids']:.2f}"]
        cells += [f"{found['sent'][mode] / 1e6:.2f}" for mode in ("rows", "sums")]
        cells += [f"{timing['median']:.1f} ({timing['minimum']:.1f})" for timing in (rows, sums)]
        cells.append(f"{rows['median'] / sums['median']:.2f}")
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--ranks", type=int, default=2, help="number of ranks")
    add("--transport", default="mpi", help="mpi (mpirun) or gloo (horovodrun)")
    add("--cycle_time", type=float, default=1.0, help="HOROVOD_CYCLE_TIME, ms")
    add("--hotness", default="2,8,16,32,64", help="ids of a bag, on average")
    add("--features", type=int, default=4, help="features, each with a table of its own")
    add("--batch", type=int, default=2048, help="samples of a step over all ranks")
    add("--dim", type=int, default=16, help="floats of a row")
    add("--rows", type=int, default=200_000, help="rows of a table")
    add("--zipf", type=float, default=1.05, help="how skewed ids are: the exponent of Zipf's law")
    add("--batches", type=int, default=4, help="batches of ids that the steps of a rank rotate over")
    add("--rounds", type=int, default=7, help="interleaved rounds that count")
    add("--calls", type=int, default=5, help="steps of each way in a round")
    add("--seed", type=int, default=1, help="of ids and rows")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
