"""Measures steps of distributed-embeddings' synthetic models, with tables over ranks and with Horovod alone.

Starts the ranks on this machine. `--help` lists the flags; README.md explains the table.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from bench import launch_ranks, markdown


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parse(arguments)
    names = ("scale", "batch", "zipf", "batches", "rounds", "calls", "seed")
    own = {name: getattr(flags, name) for name in names}
    results = []
    for model in flags.models.split(","):
        for ranks in flags.ranks.split(","):
            print(f"{model}, {ranks} ranks", file=sys.stderr, flush=True)
            result = launch_ranks.run(
                "bench.synthetic_program",
                {"model": model, **own},
                flags.transport,
                flags.cycle_time,
                int(ranks),
            )
            results.append({"model": model, **result})
    if flags.json is not None:
        flags.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(_table(results))
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--models", default="tiny,dlrm", help="of tiny, small, dlrm, multi_hot")
    add("--ranks", default="1,2,4", help="numbers of ranks")
    add("--transport", default="mpi", help="mpi (mpirun) or gloo (horovodrun)")
    add("--cycle_time", type=float, default=1.0, help="HOROVOD_CYCLE_TIME, ms")
    add("--scale", type=int, default=100, help="tables have so many times fewer rows than the originals")
    add("--batch", type=int, default=4096, help="samples per step over all ranks, a multiple of their number")
    add("--zipf", type=float, default=1.05, help="exponent of the ids' frequencies")
    add("--batches", type=int, default=4, help="batches that steps rotate over")
    add("--rounds", type=int, default=7, help="interleaved rounds, without the warm-up")
    add("--calls", type=int, default=5, help="steps of each side in a round")
    add("--seed", type=int, default=1, help="of ids and tables")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    return parser.parse_args(arguments)


def _table(results: Sequence[dict]) -> str:
    """The results in Markdown. Times are medians of a step in ms, wall times followed by the minimum."""
    # One process with the plain tables, of the same model.
    alone = {
        result["model"]: result["timings"]["plain"]["median"] for result in results if result["ranks"] == 1
    }
    lines = []
    for result in results:
        ours, plain, network = (result["timings"][name] for name in ("over ranks", "plain", "network"))
        counts = result["counts"]
        one_process = alone.get(result["model"])
        lines.append(
            [
                result["model"],
                str(result["ranks"]),
                _milliseconds(ours),
                _milliseconds(plain),
                _milliseconds(network),
                f"{plain['median'] / ours['median']:.1f}",
                "" if one_process is None else f"{one_process / ours['median']:.1f}",
                f"{ours['cpu'] - network['cpu']:.1f}",
                f"{plain['cpu'] - network['cpu']:.1f}",
                f"{counts['exchanges']:g}",
                f"{counts['bytes_over_ranks']:.0f}",
                f"{counts['bytes_gathered']:.0f}",
            ]
        )
    head = ["model", "ranks", "over ranks", "plain", "network", "plain / over", "one process / over"]
    head += ["CPU, over ranks", "CPU, plain", "exchanges", "bytes", "bytes, plain"]
    return markdown.table(head, lines)


def _milliseconds(timing: dict) -> str:
    return f"{timing['median']:.1f} ({timing['minimum']:.1f})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
