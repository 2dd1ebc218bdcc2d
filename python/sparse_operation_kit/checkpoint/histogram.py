"""Histograms of a table's keys and row norms, computed in one pass, as text and as a PNG file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.rows import columns_of, row_blocks

_LEADING_BITS = 4
_BAR_WIDTH = 40
# Counts of lookups up to this have bins of their own; above it bins are at most 1/16 of a count wide.
_SMALL_COUNT = 1024
_BINS_OF_OCTAVE = 16
# Edges of the bins of norms, which are half a power of ten wide. Two more bins are for norms outside.
_EXPONENTS = np.arange(-6.0, 6.5, 0.5)


@dataclass
class Statistics:
    """Counts of a table's rows after applying its chain.

    Attributes:
      rows: All rows.
      of_shard: Rows per shard of the last checkpoint of the chain, by the owner of the key.
      of_leading_bits: Rows per value of the first four bits of the key as a uint64.
      of_norm: Rows per Euclidean norm: zero, then below 1e-6, then half powers of ten up to above 1e6.
      not_finite: Rows with a NaN or an infinite weight, which are not in `of_norm`.
      of_count: Rows, and their lookups, per number of lookups: int64 [2, bins], rising. None if the table
        has not counted.
    """

    rows: int
    of_shard: np.ndarray
    of_leading_bits: np.ndarray
    of_norm: np.ndarray
    not_finite: int
    of_count: np.ndarray | None = None

    def rows_for(self, share: float) -> int:
        """Returns how many of the rows that are looked up most often get this share of all lookups."""
        assert self.of_count is not None, "the table has not counted"
        rows, lookups = self.of_count[:, ::-1]
        missing = share * lookups.sum() - np.cumsum(lookups) + lookups  # before each bin
        needed = np.ceil(np.clip(missing, 0, lookups) * rows / np.maximum(lookups, 1))
        return int(needed.sum())


def statistics(table: Table) -> Statistics:
    """Counts a table's rows by shard, leading bits, norm and lookups, in one pass and in blocks."""
    shards = len(table.last.shards)
    found = Statistics(
        0, np.zeros(shards, int), np.zeros(1 << _LEADING_BITS, int), np.zeros(len(_EXPONENTS) + 2, int), 0
    )
    if table.last.system:
        found.of_shard += [shard.rows for shard in table.last.shards]
    counted = [name for name in columns_of(table) if name == "frequency"]
    of_count = np.zeros([2, _SMALL_COUNT + 64 * _BINS_OF_OCTAVE], np.int64)
    found.of_count = of_count if counted else None
    for block in row_blocks(table, ("values", *counted)):
        if counted:
            counts = block.columns["frequency"]
            bins = _bins_of(counts)
            np.add.at(of_count[0], bins, 1)
            np.add.at(of_count[1], bins, counts)
        keys = block.keys.view(np.uint64)
        found.rows += len(keys)
        if not table.last.system:
            found.of_shard += np.bincount(table.last.owner(block.keys), minlength=shards)
        leading = (keys >> np.uint64(64 - _LEADING_BITS)).astype(np.int64)
        found.of_leading_bits += np.bincount(leading, minlength=1 << _LEADING_BITS)
        norms = np.sqrt(np.square(block.columns["values"].astype(np.float64)).sum(axis=1))
        finite = norms[np.isfinite(norms)]
        found.not_finite += len(norms) - len(finite)
        bins = np.where(finite == 0, 0, 1 + np.searchsorted(10.0**_EXPONENTS, finite, side="right"))
        found.of_norm += np.bincount(bins, minlength=len(found.of_norm))
    return found


def _bins_of(counts: np.ndarray) -> np.ndarray:
    """Returns the bins of numbers of lookups in `Statistics.of_count`."""
    above = _SMALL_COUNT + np.log2(np.maximum(counts, _SMALL_COUNT) / _SMALL_COUNT) * _BINS_OF_OCTAVE
    return np.where(counts < _SMALL_COUNT, np.maximum(counts, 0), above.astype(np.int64))


def norm_labels() -> list[str]:
    """Returns the names of the bins of norms."""
    edges = [f"{10.0**exponent:.2g}" for exponent in _EXPONENTS]
    between = [f"{low} to {high}" for low, high in zip(edges, edges[1:])]
    return ["0", f"below {edges[0]}", *between, f"from {edges[-1]}"]


def leading_bits_labels() -> list[str]:
    """Returns the names of the bins of leading bits; keys with a first bit of 1 are negative as int64."""
    return [f"{bits:0{_LEADING_BITS}b}…" for bits in range(1 << _LEADING_BITS)]


def text(title: str, labels: list[str], counts: np.ndarray) -> list[str]:
    """Returns the lines of a histogram, from the first bin with rows to the last."""
    used = np.flatnonzero(counts)
    if not used.size:
        return []
    width = max(len(label) for label in labels)
    lines = [f"  {title}"]
    for number in range(used[0], used[-1] + 1):
        bar = "#" * int(np.ceil(counts[number] * _BAR_WIDTH / counts.max()))
        lines.append(f"    {labels[number]:>{width}}  {counts[number]:>12,}  {bar}".rstrip())
    return lines


def save_png(path: Path, found: dict[str, Statistics]) -> None:
    """Draws the histograms of tables to a PNG file, one row of plots for each table.

    Raises:
      ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(found), 3, figsize=(15, 3.5 * len(found)), squeeze=False, layout="constrained"
    )
    for row, (name, counts) in zip(axes, found.items()):
        _bars(
            row[0],
            f"{name}: rows of each shard",
            [str(n) for n in range(len(counts.of_shard))],
            counts.of_shard,
        )
        _bars(row[1], "rows by the key's leading bits", leading_bits_labels(), counts.of_leading_bits)
        _bars(row[2], "rows by norm", norm_labels(), counts.of_norm)
    try:
        figure.savefig(path, dpi=100, format="png")
    finally:
        pyplot.close(figure)


def _bars(axes, title: str, labels: list[str], counts: np.ndarray) -> None:
    used = np.flatnonzero(counts)
    shown = slice(used[0], used[-1] + 1) if used.size else slice(0, 1)
    axes.bar(np.arange(len(counts))[shown], counts[shown])
    few = max(1, len(counts[shown]) // 20)
    axes.set_xticks(np.arange(len(counts))[shown][::few], labels[shown][::few], rotation=60, ha="right")
    axes.set_title(title)
