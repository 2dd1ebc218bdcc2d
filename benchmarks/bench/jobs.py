"""What all contenders do: tables, and the ids, rows and gradients of a rotation of batches.

Ids follow Zipf's law over the rows of each table; frequent ids are scattered over the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import BinaryIO, List

import numpy as np

# Slot floats per float of a row.
_SLOTS = {"lazy_adam": 2, "adam": 2, "adagrad": 1, "sgd": 0}
_BYTES_PER_FLOAT = 4


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


@dataclasses.dataclass(frozen=True)
class Job:
    """Tables of equal size, one for each feature, and the batches that are looked up in them.

    Attributes:
      rows: of each table.
      batch: bags per feature in a step.
      hotness: ids per bag, on average.
      zipf: the exponent; 0 is the uniform distribution.
      batches: how many the steps rotate over.
      ids: a file of `write_ids`.
      row_dtype: the type of rows. Slots are in float32, where a library lets them be.
    """

    features: int
    rows: int
    dim: int = 1
    optimizer: str = "sgd"
    batch: int = 1
    hotness: int = 1
    zipf: float = 0.0
    batches: int = 4
    threads: int = 1
    seed: int = 1
    ids: str = ""
    row_dtype: str = "float32"

    @classmethod
    def of(cls, point: argparse.Namespace, **others: object) -> Job:
        """The job of flags. `--rows`, or the float32 rows that fit into `--table_mb`, are of all tables."""
        values = {field.name: getattr(point, field.name, field.default) for field in dataclasses.fields(cls)}
        total = point.rows or int(point.table_mb * 1e6) // (point.dim * _BYTES_PER_FLOAT)
        values["rows"] = max(1, total // point.features)
        return cls(**{**values, **others})

    @property
    def bytes(self) -> int:
        """Bytes of the rows of all tables in float32, without the optimizer's slots."""
        return self.features * self.rows * self.dim * _BYTES_PER_FLOAT

    @property
    def record_bytes(self) -> int:
        """Bytes of a row with its optimizer slots."""
        floats = (
            self.dim + 1 if self.optimizer == "rowwise_adagrad" else self.dim * (1 + _SLOTS[self.optimizer])
        )
        return floats * _BYTES_PER_FLOAT - self.dim * _BYTES_PER_FLOAT + self.row_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a row without its slots."""
        return self.dim * (_BYTES_PER_FLOAT if self.row_dtype == "float32" else 2)

    def bytes_moved(self, what: str, ids: float, unique: float) -> float:
        """The fewest bytes that a "forward", "lookup" or "step" with so many ids and distinct rows can move.

        It reads ids and distinct rows and writes outputs. A step also reads the outputs' gradients, and reads
        and writes the distinct records (rows and slots).
        """
        outputs = self.features * self.batch * self.dim * _BYTES_PER_FLOAT
        lookup = 8 * ids + unique * self.row_bytes + outputs
        return lookup + outputs + 2 * unique * self.record_bytes if what == "step" else lookup

    def row_values(self, feature: int) -> np.ndarray:
        """The initial rows of a feature's table, float32 [rows, dim]."""
        rng = np.random.default_rng([self.seed, feature])
        return (rng.random((self.rows, self.dim), dtype=np.float32) - np.float32(0.5)) * np.float32(0.1)

    def gradients(self, feature: int) -> np.ndarray:
        """The gradients of a feature's outputs, float32 [batch, dim], generated because there is no model.

        All are positive: if a sum nearly cancelled, rounding would decide the sign of Adam's first steps.
        """
        rng = np.random.default_rng([self.seed, 1 << 20, feature])
        return rng.random((self.batch, self.dim), dtype=np.float32) + np.float32(0.5)

    def make_batches(self) -> list[Batch]:
        """Draws the batches. Each feature has its own frequent ids, which are the same in all batches."""
        rng = np.random.default_rng([self.seed, self.hotness])
        sources = [_ZipfIds(self.rows, self.zipf, rng) for _ in range(self.features)]
        return [[self._draw_bags(source, rng) for source in sources] for _ in range(self.batches)]

    def _draw_bags(self, source: _ZipfIds, rng: np.random.Generator) -> FeatureBags:
        # Lengths are uniform in [1, 2 * hotness - 1]: with a hotness of 1, each bag has exactly one id.
        lengths = rng.integers(1, 2 * self.hotness, size=self.batch)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return FeatureBags(source.draw(int(offsets[-1])), offsets)

    def write_ids(self, batches: list[Batch], path: pathlib.Path) -> Job:
        """Writes batches for other processes: per batch and feature the offsets, then the ids, all int64."""
        with open(path, "wb") as stream:
            for batch in batches:
                for bags in batch:
                    bags.offsets.tofile(stream)
                    bags.ids.tofile(stream)
        return dataclasses.replace(self, ids=str(path))

    def read_ids(self) -> list[Batch]:
        """The batches of the file `ids`."""
        with open(self.ids, "rb") as stream:
            return [[self._read_bags(stream) for _ in range(self.features)] for _ in range(self.batches)]

    def _read_bags(self, stream: BinaryIO) -> FeatureBags:
        offsets = np.fromfile(stream, np.int64, self.batch + 1)
        return FeatureBags(np.fromfile(stream, np.int64, int(offsets[-1])), offsets)


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


def scattered_keys(numbers: np.ndarray) -> np.ndarray:
    """Distinct keys from the whole int64 range for distinct numbers."""
    # Multiplying by an odd number keeps them distinct.
    return (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def ids_per_step(batches: list[Batch]) -> float:
    """Ids per batch over all features, on average."""
    return float(np.mean([sum(bags.ids.size for bags in batch) for batch in batches]))


def unique_per_step(batches: list[Batch]) -> float:
    """Distinct ids per batch, summed over all tables, on average."""
    return float(np.mean([sum(np.unique(bags.ids).size for bags in batch) for batch in batches]))
