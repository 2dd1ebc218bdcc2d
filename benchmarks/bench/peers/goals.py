"""The goals of the results of peers.py."""

from __future__ import annotations

from collections.abc import Sequence

from bench.goal import Goal
from bench.peers.catalog import LAZY
from bench.peers.report import Row

# (what, optimizer, peer, least, aim). The ratio is the peer's time divided by ours; None is any optimizer, or
# no aim.
_GOALS = (
    ("step", "lazy_adam", "tfra", 8.0, 12.0),
    ("step", "lazy_adam", "tensorflow", 2.0, 3.0),
    ("step", "rowwise_adagrad", "fbgemm", 1.0, 1.5),
    ("step", "adam", LAZY, 1 / 1.5, None),
    ("step", "adam", "tensorflow", 50.0, None),
    # The cost of the op layer: a session's step may take at most 1.25 times as long as the bare engine's.
    ("step", None, "engine", 1 / 1.25, None),
    ("forward", None, "fbgemm", 1.3, None),
)
_LARGE_BYTES = 3e9  # size of the tables in the goal of forward
# Least number of rows in the goal of exact Adam: the ten million rows of a default run, rounded down per
# feature.
_MANY_ROWS = 9e6


def of_rows(rows: Sequence[Row]) -> list[Goal]:
    """The goals of the rows and peers that have one."""
    return [goal for row in rows for goal in _of_row(row)]


def _of_row(row: Row) -> list[Goal]:
    ratios = {entry.name: entry.ratio for entry in row.entries}
    goals = []
    for what, optimizer, peer, least, aim in _GOALS:
        if what != row.what or peer not in ratios or optimizer not in (None, row.tables.optimizer):
            continue
        if what == "forward" and row.tables.bytes < 0.99 * _LARGE_BYTES:
            continue
        many = row.tables.features * row.tables.rows_per_table >= _MANY_ROWS
        if (optimizer, peer) == ("adam", "tensorflow") and not many:
            continue
        goals.append(Goal(_question(row), peer, ratios[peer], least, aim))
    return goals


def _question(row: Row) -> str:
    skew = f"Zipf {row.bags.exponent:g}" if row.bags.exponent else "uniform"
    threads = "1 thread" if row.threads == 1 else f"{row.threads} threads"
    tables = f"dim {row.tables.dim}, {row.tables.bytes / 1e9:.2g} GB"
    return f"{row.what}, {row.tables.optimizer}, {tables}, {row.bags.hotness} ids per bag, {skew}, {threads}"
