"""The models of synthetic_models.py: sizes of tables and networks, and batches for them.

"tiny" and "small" are those of distributed-embeddings' own benchmark. "dlrm" has Criteo's features, and
"multi_hot" the same with several ids per feature, as many as in MLPerf's DLRM.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Tables:
    """Tables of one size.

    Attributes:
      count: how many.
      hotness: ids per sample of each input; each table has an input for each of these.
      rows: of a table, before scaling.
      width: columns.
    """

    count: int
    hotness: tuple[int, ...]
    rows: int
    width: int


@dataclasses.dataclass(frozen=True)
class Model:
    """A model.

    Attributes:
      tables: its tables.
      numbers: numerical features of a sample.
      layers: units of the network behind the tables, without the last, which has one.
      pairs: whether the network gets dot products of all pairs of rows, as in DLRM, or the rows side by side.
    """

    tables: tuple[Tables, ...]
    numbers: int
    layers: tuple[int, ...]
    pairs: bool = False


_DLRM_ROWS = [int(rows) for rows in np.geomspace(40_000_000, 4, 26)]
_IDS_OF_MULTI_HOT = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)

MODELS = {
    "tiny": Model(
        (
            Tables(1, (1, 10), 10_000, 8),
            Tables(1, (1, 10), 1_000_000, 16),
            Tables(1, (1, 10), 25_000_000, 16),
            Tables(1, (1,), 25_000_000, 16),
            Tables(16, (1,), 10, 8),
            Tables(10, (1,), 1000, 8),
            Tables(4, (1,), 10_000, 8),
            Tables(2, (1,), 100_000, 16),
            Tables(19, (1,), 1_000_000, 16),
        ),
        numbers=10,
        layers=(256, 128),
    ),
    "small": Model(
        (
            Tables(5, (1, 30), 10_000, 16),
            Tables(3, (1, 30), 4_000_000, 32),
            Tables(1, (1, 30), 50_000_000, 32),
            Tables(1, (1,), 50_000_000, 32),
            Tables(30, (1,), 10, 16),
            Tables(30, (1,), 1000, 16),
            Tables(5, (1,), 10_000, 16),
            Tables(5, (1,), 100_000, 32),
            Tables(27, (1,), 4_000_000, 32),
        ),
        numbers=10,
        layers=(512, 256, 128),
    ),
    "dlrm": Model(
        tuple(Tables(1, (1,), rows, 16) for rows in _DLRM_ROWS),
        numbers=13,
        layers=(256, 128),
        pairs=True,
    ),
    "multi_hot": Model(
        tuple(Tables(1, (ids,), rows, 16) for ids, rows in zip(_IDS_OF_MULTI_HOT, _DLRM_ROWS)),
        numbers=13,
        layers=(256, 128),
        pairs=True,
    ),
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A model's tables and inputs, one by one, with scaled rows.

    Attributes:
      shapes: (rows, width) of each table.
      table_of: the table of each input.
      hotness: ids per sample of each input.
    """

    shapes: list[tuple[int, int]]
    table_of: list[int]
    hotness: list[int]

    @classmethod
    def of(cls, model: Model, scale: int) -> Sizes:
        """The sizes of a model whose tables have a `scale`-th of their rows, but ten at least."""
        sizes = cls([], [], [])
        for tables in model.tables:
            for _ in range(tables.count):
                sizes.table_of.extend([len(sizes.shapes)] * len(tables.hotness))
                sizes.hotness.extend(tables.hotness)
                sizes.shapes.append((max(tables.rows // scale, min(tables.rows, 10)), tables.width))
        return sizes


def draw_ids(sizes: Sizes, batch: int, zipf: float, rng: np.random.Generator) -> np.ndarray:
    """Ids of all inputs side by side, int64 [batch, sum of hotness]; frequencies follow Zipf's law."""
    columns = []
    for table, hotness in zip(sizes.table_of, sizes.hotness):
        rows = sizes.shapes[table][0]
        # The inverse of the distribution function of a density proportional to x^-zipf on [1, rows + 1).
        power = 1 - zipf
        uniform = rng.random([batch, hotness])
        if power == 0:
            drawn = (rows + 1.0) ** uniform
        else:
            drawn = (uniform * ((rows + 1) ** power - 1) + 1) ** (1 / power)
        columns.append(np.minimum(drawn.astype(np.int64) - 1, rows - 1))
    return np.concatenate(columns, axis=1)
