"""The goals that other workloads' --json files reach: `--results steps.json,parts.json,trainer.json`."""

from __future__ import annotations

import argparse
import pathlib

from bench import flags, report

FLAGS = {"results": flags.Flag(pathlib.Path, "--json files of peers, parts and trainer", ())}

table = report.goals_table


def measure(point: argparse.Namespace) -> list[report.Result]:
    """Reads a file."""
    return report.read(point.results)
