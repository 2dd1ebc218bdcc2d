"""Prints which goals are reached, from the --json files of peers.py, engine_parts.py and trainer.py.

goals.py results/steps.json results/engine_parts.json results/trainer.json --plot goals.png
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

import trainer
from bench import markdown, parts_report
from bench.goal import Goal
from bench.peers import goals as peers_goals
from bench.peers import report as peers_report


def main(arguments: Sequence[str]) -> int:
    """Runs the program; returns its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="--json files of those programs")
    parser.add_argument("--plot", type=pathlib.Path, default=None, help="picture to draw, .png or .svg")
    flags = parser.parse_args(arguments)
    goals = [goal for path in flags.files for goal in read(path)]
    if flags.plot is not None:
        from bench import ratio_plot

        ratio_plot.write(flags.plot, goals)
    print(table(goals))
    return 0


def read(path: pathlib.Path) -> list[Goal]:
    """The goals of a file that peers.py, engine_parts.py or trainer.py wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    if not rows:
        return []
    if "part" in rows[0]:
        return [row.goal() for row in parts_report.read_rows(path)]
    if "dataset" in rows[0]:
        return [row.goal() for row in trainer.read_rows(path)]
    return peers_goals.of_rows(peers_report.read_json(path)[1])


def table(goals: Sequence[Goal]) -> str:
    """The goals in Markdown."""
    head = ("what", "beside", "ratio", "at least", "aim", "")
    lines = [
        (
            goal.question,
            goal.beside,
            f"{goal.ratio:.2f}",
            f"{goal.least:.3g}",
            "" if goal.aim is None else f"{goal.aim:g}",
            goal.verdict(),
        )
        for goal in goals
    ]
    return markdown.table(head, lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
