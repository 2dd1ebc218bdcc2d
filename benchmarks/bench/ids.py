"""The ids of a run: Zipf's law over the rows of each table, with frequent ids scattered over the table."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import BinaryIO, List

import numpy as np

from bench.axes import Bags


@dataclasses.dataclass(frozen=True)
class FeatureBags:
    """One feature's ids in one batch: bag b holds ids[offsets[b]:offsets[b + 1]]."""

    ids: np.ndarray  # int64
    offsets: np.ndarray  # int64, [bags + 1]

    def sparse_indices(self) -> np.ndarray:
        """The indices of the SparseTensor that holds these bags as rows, int64 [ids, 2]."""
        lengths = np.diff(self.offsets)
        rows = np.repeat(np.arange(lengths.size), lengths)
        return np.stack([rows, np.arange(self.ids.size) - self.offsets[rows]], axis=1)

    def longest(self) -> int:
        """The number of ids in the longest bag."""
        return int(np.diff(self.offsets).max())


Batch = List[FeatureBags]  # one for each feature


class _ZipfIds:
    """Draws ids in [0, rows): the k-th most frequent one with probability proportional to k^-exponent."""

    def __init__(self, rows: int, exponent: float, rng: np.random.Generator) -> None:
        weights = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
        self._cumulative = np.cumsum(weights)
        self._id_of_rank = rng.permutation(rows)
        self._rng = rng

    def draw(self, count: int) -> np.ndarray:
        drawn = self._rng.random(count) * self._cumulative[-1]
        # A draw that is rounded up to the total would be one past the last id.
        ranks = np.minimum(np.searchsorted(self._cumulative, drawn, side="right"), self._id_of_rank.size - 1)
        return self._id_of_rank[ranks].astype(np.int64)


def make_batches(bags: Bags, features: int, rows_per_table: int, count: int, seed: int) -> list[Batch]:
    """Makes `count` batches. Each feature has its own frequent ids, which are the same in all batches."""
    rng = np.random.default_rng([seed, bags.hotness])
    sources = [_ZipfIds(rows_per_table, bags.exponent, rng) for _ in range(features)]
    return [[_feature_bags(bags, source, rng) for source in sources] for _ in range(count)]


def _feature_bags(bags: Bags, source: _ZipfIds, rng: np.random.Generator) -> FeatureBags:
    # Lengths are uniform in [1, 2 * hotness - 1], so that with a hotness of 1 each bag has exactly one id.
    lengths = rng.integers(1, 2 * bags.hotness, size=bags.batch)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return FeatureBags(source.draw(int(offsets[-1])), offsets)


def ids_per_step(batches: list[Batch]) -> float:
    """Ids per batch over all features, on average."""
    return float(np.mean([sum(bags.ids.size for bags in batch) for batch in batches]))


def unique_per_step(batches: list[Batch]) -> float:
    """Distinct ids per batch, summed over all tables, on average."""
    return float(np.mean([sum(np.unique(bags.ids).size for bags in batch) for batch in batches]))


def write_batches(batches: list[Batch], path: pathlib.Path) -> None:
    """Writes batches for C++ programs: per batch and feature the offsets, then the ids, all int64."""
    with open(path, "wb") as stream:
        for batch in batches:
            for bags in batch:
                bags.offsets.tofile(stream)
                bags.ids.tofile(stream)


def read_batches(path: pathlib.Path, features: int, bags: int, count: int) -> list[Batch]:
    """Reads a file of `write_batches`: `count` batches of `features` features, each with `bags` bags."""
    with open(path, "rb") as stream:
        return [[_read_bags(stream, bags) for _ in range(features)] for _ in range(count)]


def _read_bags(stream: BinaryIO, bags: int) -> FeatureBags:
    offsets = np.fromfile(stream, np.int64, bags + 1)
    return FeatureBags(np.fromfile(stream, np.int64, int(offsets[-1])), offsets)
