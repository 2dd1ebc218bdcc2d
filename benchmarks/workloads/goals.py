"""The goals that other workloads' --json files reach: `--saved steps.json,parts.json,trainer.json`."""

from __future__ import annotations

import argparse
import sys

from bench import report

FLAGS: dict[str, object] = {}

table = report.goals_table


def measure(point: argparse.Namespace) -> list[report.Result]:
    """Measures nothing."""
    sys.exit("goals needs the --json files of peers, parts or trainer, as --saved")
