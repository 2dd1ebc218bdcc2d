"""Measures steps of distributed-embeddings' synthetic models, with tables over ranks and with Horovod alone.

Starts the ranks on this machine. `--help` lists the flags; README.md explains the table.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from bench import axes, launch_ranks, markdown
from bench.synthetic_models import MODELS

_HEAD = (
    *("model", "ranks", "over ranks", "plain", "network", "plain / over", "one process / over"),
    *("CPU, over ranks", "CPU, plain", "exchanges", "bytes", "bytes, plain"),
)
_SIDES = ("over ranks", "plain", "network")


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    flags = _parse(arguments)
    names = ("scale", "batch", "zipf", "batches", "rounds", "calls", "seed", "profile")
    own = {name: getattr(flags, name) for name in names}
    results: list[dict] = []
    for model in flags.models:
        # One process first, because the others' rows name its time.
        for ranks in sorted(flags.ranks):
            result = launch_ranks.run(
                "bench.synthetic_program",
                {"model": model, **own},
                flags.transport,
                flags.cycle_time,
                ranks,
            )
            results.append({"model": model, **result})
            # Runs take minutes, so each row is printed when it is ready.
            table = markdown.table(_HEAD, [_line(result, results) for result in results]).splitlines()
            print("\n".join(table if len(results) == 1 else table[-1:]), flush=True)
    for result in results:
        if result["profiles"]:
            print("\n" + _profile(result))
    if flags.json is not None:
        flags.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    models = axes.list_of(axes.one_of("model", tuple(MODELS)))
    add("--models", type=models, default=("tiny", "dlrm"), help="some of " + ",".join(MODELS))
    add("--ranks", type=axes.list_of(axes.at_least_one), default=(1, 2, 4), help="numbers of ranks")
    add("--transport", default="mpi", help="mpi (mpirun) or gloo (horovodrun)")
    add("--cycle_time", type=float, default=1.0, help="HOROVOD_CYCLE_TIME, ms")
    add("--scale", type=int, default=100, help="tables have so many times fewer rows than the originals")
    add("--batch", type=int, default=4096, help="samples per step over all ranks, a multiple of their number")
    add("--zipf", type=float, default=1.05, help="exponent of the ids' frequencies")
    add("--batches", type=int, default=4, help="batches that steps rotate over")
    add("--rounds", type=int, default=7, help="interleaved rounds, without the warm-up")
    add("--calls", type=int, default=5, help="steps of each side in a round")
    add("--profile", type=int, default=0, help="steps of each side to trace; lists the time of their ops")
    add("--seed", type=int, default=1, help="of ids and tables")
    add("--json", type=pathlib.Path, default=None, help="file to write all numbers to")
    return parser.parse_args(arguments)


def _line(result: dict, results: Sequence[dict]) -> list[str]:
    """A row of the table. Times are medians of a step in ms, wall times followed by the minimum."""
    ours, plain, network = (result["timings"][side] for side in _SIDES)
    counts = result["counts"]
    # One process with the plain tables, of the same model.
    alone = [
        one["timings"]["plain"]["median"]
        for one in results
        if one["model"] == result["model"] and one["ranks"] == 1
    ]
    return [
        result["model"],
        str(result["ranks"]),
        _milliseconds(ours),
        _milliseconds(plain),
        _milliseconds(network),
        f"{plain['median'] / ours['median']:.1f}",
        f"{alone[0] / ours['median']:.1f}" if alone else "",
        f"{ours['cpu'] - network['cpu']:.1f}",
        f"{plain['cpu'] - network['cpu']:.1f}",
        f"{counts['exchanges']:g}",
        f"{counts['bytes_over_ranks']:.0f}",
        f"{counts['bytes_gathered']:.0f}",
    ]


def _profile(result: dict) -> str:
    """Types of ops, sorted by the time that steps over ranks spend on them beyond the network's."""
    profiles = [result["profiles"][side] for side in _SIDES]
    none = {"nodes": 0, "milliseconds": 0.0}

    def beyond(kind: str) -> float:
        ours, _, network = (profile.get(kind, none)["milliseconds"] for profile in profiles)
        return ours - network

    kinds = sorted({kind for profile in profiles for kind in profile}, key=beyond, reverse=True)
    lines = [
        [kind, *(_ops(profile.get(kind, none)) for profile in profiles)]
        for kind in kinds
        # Leaves out the many types that take almost no time.
        if any(profile.get(kind, none)["milliseconds"] >= 0.05 for profile in profiles)
    ]
    totals = [
        {key: sum(ops[key] for ops in profile.values()) for key in ("nodes", "milliseconds")}
        for profile in profiles
    ]
    lines.append(["all, with types not listed", *map(_ops, totals)])
    return markdown.table([f"ms (ops) of {result['model']}, {result['ranks']} ranks", *_SIDES], lines)


def _ops(ops: dict) -> str:
    return f"{ops['milliseconds']:.2f} ({ops['nodes']})" if ops["nodes"] else ""


def _milliseconds(timing: dict) -> str:
    return f"{timing['median']:.1f} ({timing['minimum']:.1f})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
