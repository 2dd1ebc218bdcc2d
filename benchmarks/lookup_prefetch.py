"""What lookups a step ahead gain: training steps with `sok.LookupPrefetch` beside the same without.

Starts the ranks itself, on this machine. `--help` lists the flags, README.md says how to read the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import sys
from collections.abc import Sequence

from bench import launch_ranks

_FOR_THE_RANKS = (
    "features",
    "hotness",
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
    own = {name: getattr(flags, name) for name in _FOR_THE_RANKS}
    machine, rows = {}, []
    print("| ranks | batch | hidden | ids | plain, ms | ahead, ms | plain / ahead |")
    print("|---|---|---|---|---|---|---|")
    axes = (flags.ranks.split(","), flags.batch.split(","), flags.hidden.split(","))
    for ranks, batch, hidden in itertools.product(*axes):
        varied = {"batch": batch, "hidden": hidden}
        found = launch_ranks.run(
            "bench.prefetch_program", own | varied, flags.transport, flags.cycle_time, int(ranks)
        )
        machine = found.pop("machine")
        rows.append({"ranks": int(ranks), **{name: int(value) for name, value in varied.items()}, **found})
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--ranks", default="1,2", help="numbers of ranks")
    add("--transport", default="mpi", help="mpi (mpirun) or gloo (horovodrun)")
    add("--cycle_time", type=float, default=1.0, help="HOROVOD_CYCLE_TIME, ms")
    add("--batch", default="512,4096", help="samples of a step over all ranks")
    add("--hidden", default="64,512", help="units of the model's dense layer")
    add("--features", type=int, default=26, help="features, each with a table of its own")
    add("--hotness", type=int, default=1, help="ids of a bag, on average")
    add("--dim", type=int, default=16, help="floats of a row")
    add("--rows", type=int, default=2_600_000, help="rows of all tables together")
    add("--zipf", type=float, default=1.05, help="how skewed ids are: the exponent of Zipf's law")
    add("--optimizer", default="adagrad", help="lazy_adam, adagrad or sgd")
    add("--batches", type=int, default=4, help="batches of ids that the steps of a rank rotate over")
    add("--rounds", type=int, default=7, help="interleaved rounds that count")
    add("--calls", type=int, default=20, help="steps of each side in a round")
    add("--seed", type=int, default=1, help="of ids and rows")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
