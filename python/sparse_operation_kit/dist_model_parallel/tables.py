"""The sizes of tables, how to place them, and checks of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

STRATEGIES = ("basic", "memory_balanced", "memory_optimized")


@dataclasses.dataclass(frozen=True)
class Table:
    """The sizes of a table, and what its lookups do.

    Attributes:
      rows: at least 1, of any size.
      columns: at least 1.
      combiner: "sum", "mean" or None. Only tables of one combiner are concatenated.
      hotness: ids per sample, over all inputs that look the table up; None if unknown.
      name: for messages.
    """

    rows: int
    columns: int
    combiner: str | None = None
    hotness: float | None = None
    name: str = ""

    @property
    def elements(self) -> int:
        """Rows times columns."""
        return self.rows * self.columns


@dataclasses.dataclass(frozen=True)
class Options:
    """How tables are sliced and distributed; the arguments of DistributedEmbedding.

    Attributes:
      strategy: one of STRATEGIES.
      column_slice_threshold: the most elements of a slice of columns. None: tables are cut only if fewer
        tables than ranks are neither replicated nor sliced by rows.
      row_slice_threshold: tables with at least this many elements are sliced by rows. None: none is.
      data_parallel_threshold: tables with at most this many elements are replicated. None: none is.
    """

    strategy: str = "basic"
    column_slice_threshold: int | None = None
    row_slice_threshold: int | None = None
    data_parallel_threshold: int | None = None


def _check_count(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{what} must be an integer of at least 1, not {value!r}")


def check(tables: Sequence[Table], ranks: int, options: Options) -> None:
    """Raises ValueError, which names the value, unless tables can be placed so."""
    _check_count(ranks, "The number of ranks")
    if options.strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {options.strategy!r}")
    for threshold in ("column_slice_threshold", "row_slice_threshold", "data_parallel_threshold"):
        value = getattr(options, threshold)
        if value is not None:
            _check_count(value, threshold)
    if not tables:
        raise ValueError("There are no tables to place")
    for number, table in enumerate(tables):
        who = describe(number, table)
        _check_count(table.rows, f"{who}: the number of rows")
        _check_count(table.columns, f"{who}: the number of columns")
        if table.hotness is not None and not 0 <= table.hotness < float("inf"):
            raise ValueError(f"{who}: hotness must be a number of at least 0, not {table.hotness!r}")


def describe(number: int, table: Table) -> str:
    """How messages name a table."""
    return f"Table {number} ('{table.name}')" if table.name else f"Table {number}"
