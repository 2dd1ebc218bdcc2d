"""Draws runs of train_transformer.py: the loss of each, and the memory of each rank.

    python draw_runs.py one two three --picture runs.png

takes the folders of results.json.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any


def parse_flags() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", help="of results.json, one for each run")
    parser.add_argument("--picture", default="runs.png", help="the file to write")
    return parser.parse_args()


def read(folder: str) -> dict[str, Any]:
    """The results of a run."""
    with open(os.path.join(folder, "results.json"), encoding="utf-8") as file:
        return json.load(file)


def title_of(run: dict[str, Any]) -> str:
    """A run in few words, such as "2 ranks, cut"."""
    ranks = run["ranks"]
    return f"{ranks} {'rank' if ranks == 1 else 'ranks'}, {run['flags']['table']}"


def draw(runs: list[dict[str, Any]], path: str) -> None:
    """Writes the picture of runs."""
    import matplotlib

    # "Agg" needs no display.
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (losses, memory) = pyplot.subplots(1, 2, figsize=(12, 4.5))
    # Equal losses lie upon each other: earlier ones show beside later ones, which are thinner.
    for place, run in enumerate(runs):
        width = 1.5 * (len(runs) - place)
        steps = range(1, 1 + len(run["losses"]))
        losses.plot(steps, run["losses"], linewidth=width, alpha=0.6, label=title_of(run))
    losses.set_yscale("log")
    losses.set_xlabel("step")
    losses.set_ylabel("loss of a token")
    losses.legend()
    losses.grid(alpha=0.3)

    names, tables, others = [], [], []
    for run in runs:
        for rank, (table, other) in enumerate(zip(run["table_bytes"], run["other_bytes"])):
            names.append(f"{title_of(run)}: rank {rank}")
            tables.append(table / 2**20)
            others.append(other / 2**20)
    # The first run on top.
    names, tables, others = names[::-1], tables[::-1], others[::-1]
    memory.barh(names, tables, label="vocabulary table and its moments")
    memory.barh(names, others, left=tables, label="network and its moments")
    memory.set_xlabel("MiB on the rank")
    memory.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def main() -> None:
    """Reads results and draws them."""
    flags = parse_flags()
    draw([read(folder) for folder in flags.folders], flags.picture)


if __name__ == "__main__":
    main()
