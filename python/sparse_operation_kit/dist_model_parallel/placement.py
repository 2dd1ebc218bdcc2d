"""Where tables are: a pure function from their sizes to pieces on ranks. All ranks compute the same.

A table is replicated, sliced by rows over all ranks, or sliced by columns into one or more slices. Slices are
distributed over ranks by a strategy. Slices of one table that meet on a rank are one piece. Pieces of one
width and combiner on a rank form a group, which is one variable: the pieces follow each other in its rows.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Tuple

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
    """How tables are sliced and distributed: arguments of `DistEmbeddingStrategy`, which explains them."""

    strategy: str = "basic"
    column_slice_threshold: int | None = None
    row_slice_threshold: int | None = None
    data_parallel_threshold: int | None = None


def check_count(value: Any, what: str) -> None:
    """Raises ValueError, which begins with `what`, unless a value is an integer of at least 1."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise ValueError(f"{what} must be an integer of at least 1, not {value!r}")


def check(tables: Sequence[Table], ranks: int, options: Options) -> None:
    """Raises ValueError, which names the value, unless tables can be placed so."""
    check_count(ranks, "The number of ranks")
    if options.strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {options.strategy!r}")
    for threshold in ("column_slice_threshold", "row_slice_threshold", "data_parallel_threshold"):
        value = getattr(options, threshold)
        if value is not None:
            check_count(value, threshold)
    if not tables:
        raise ValueError("There are no tables to place")
    for number, table in enumerate(tables):
        who = describe(number, table)
        check_count(table.rows, f"{who}: the number of rows")
        check_count(table.columns, f"{who}: the number of columns")
        if table.hotness is not None and not 0 <= table.hotness < float("inf"):
            raise ValueError(f"{who}: hotness must be a number of at least 0, not {table.hotness!r}")


def describe(number: int, table: Table) -> str:
    """How messages name a table."""
    return f"Table {number} ('{table.name}')" if table.name else f"Table {number}"


BYTES_PER_ELEMENT = 4  # float32


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a table on a rank.

    Attributes:
      table: its number.
      rank: where it is. A replicated table has a piece on each rank.
      rows, columns: [begin, end) of the table.
      group: the number of its variable on the rank.
      offset: the row of the variable at which the piece begins.
    """

    table: int
    rank: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    group: int
    offset: int

    @property
    def elements(self) -> int:
        """Rows times columns."""
        return (self.rows[1] - self.rows[0]) * (self.columns[1] - self.columns[0])


@dataclasses.dataclass(frozen=True)
class Placement:
    """The pieces of all tables.

    Attributes:
      tables: as given.
      ranks: their number.
      replicated: the numbers of the tables that every rank has whole.
      row_sliced: the numbers of the tables that are sliced by rows.
      pieces: by rank, group and offset.
    """

    tables: tuple[Table, ...]
    ranks: int
    replicated: tuple[int, ...]
    row_sliced: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def on_rank(self, rank: int) -> list[Piece]:
        """The pieces of a rank."""
        return [piece for piece in self.pieces if piece.rank == rank]

    def bytes_on(self, rank: int) -> int:
        """Bytes of a rank's weights, without slots of optimizers."""
        return BYTES_PER_ELEMENT * sum(piece.elements for piece in self.on_rank(rank))

    def lookups_on(self, rank: int) -> float | None:
        """Elements that a rank reads for a sample of the whole batch; None if a hotness is unknown.

        A rank with a part of a table's rows reads that part of the ids. A replicated table is read on the
        rank that has the sample.
        """
        reads = 0.0
        for piece in self.on_rank(rank):
            table = self.tables[piece.table]
            if table.hotness is None:
                return None
            share = (piece.rows[1] - piece.rows[0]) / table.rows
            if piece.table in self.replicated:
                share /= self.ranks
            reads += table.hotness * share * (piece.columns[1] - piece.columns[0])
        return reads


def place(tables: Sequence[Table], ranks: int, options: Options = Options()) -> Placement:  # noqa: B008
    """Places tables on ranks.

    Args:
      tables: the tables, in the order in which they are dealt; of equal sizes, the earlier comes first.
      ranks: at least 1.
      options: how to slice and distribute them.

    Raises:
      ValueError: a number is below 1 or not an integer, a strategy is unknown, or there are fewer slices than
        ranks and no table can be cut further.
    """
    check(tables, ranks, options)
    replicated, row_sliced, by_columns = [], [], []
    for number, table in enumerate(tables):
        if table.elements <= (options.data_parallel_threshold or 0):
            replicated.append(number)
        elif options.row_slice_threshold is not None and table.elements >= options.row_slice_threshold:
            row_sliced.append(number)
        else:
            by_columns.append(number)
    parts = {rank: _deal_to_all(tables, replicated, row_sliced, rank, ranks) for rank in range(ranks)}
    counts = slice_counts(tables, by_columns, ranks, options.column_slice_threshold)
    slices = sum(counts.values())
    if slices < ranks and options.column_slice_threshold is None and len(by_columns) == len(tables):
        raise ValueError(
            f"{len(tables)} tables can be cut by columns into {slices} slices, fewer than {ranks} ranks: "
            "take fewer ranks, or cut tables by rows with row_slice_threshold"
        )
    for number, rank, columns in merged(tables, dealt(tables, counts, ranks, options.strategy)):
        parts[rank].append((number, (0, tables[number].rows), columns))
    alone = frozenset(replicated + row_sliced)
    pieces = [piece for rank in range(ranks) for piece in _grouped(tables, rank, parts[rank], alone)]
    return Placement(tuple(tables), ranks, tuple(replicated), tuple(row_sliced), tuple(pieces))


_Part = Tuple[int, Tuple[int, int], Tuple[int, int]]  # table, rows, columns


def _deal_to_all(
    tables: Sequence[Table], replicated: Sequence[int], row_sliced: Sequence[int], rank: int, ranks: int
) -> list[_Part]:
    """A rank's parts of tables that all ranks share. The first `rows % ranks` ranks have one row more."""
    parts: list[_Part] = []
    for number in replicated:
        parts.append((number, (0, tables[number].rows), (0, tables[number].columns)))
    for number in row_sliced:
        rows, more = divmod(tables[number].rows, ranks)
        begin = rank * rows + min(rank, more)
        if rows + (rank < more) > 0:
            parts.append((number, (begin, begin + rows + (rank < more)), (0, tables[number].columns)))
    return parts


def _grouped(
    tables: Sequence[Table], rank: int, parts: Sequence[_Part], alone: frozenset[int]
) -> list[Piece]:
    """A rank's pieces, grouped by width and combiner; each table in `alone` has its own group."""
    groups: dict[object, list[_Part]] = {}
    for part in parts:
        table, _, (begin, end) = part
        key = ("alone", table) if table in alone else (end - begin, tables[table].combiner)
        groups.setdefault(key, []).append(part)
    pieces = []
    for number, members in enumerate(groups.values()):
        offset = 0
        for table, rows, columns in members:
            pieces.append(Piece(table, rank, rows, columns, number, offset))
            offset += rows[1] - rows[0]
    return pieces


def _slices_for(table: Table, threshold: int, ranks: int) -> int:
    """The number of slices: the smallest power of two for slices of at most `threshold` elements.

    It is not more than the number of ranks or of columns.
    """
    slices = 1
    while table.rows * -(-table.columns // slices) > threshold and slices < min(ranks, table.columns):
        slices *= 2
    return min(slices, ranks, table.columns)


def slice_counts(
    tables: Sequence[Table], numbers: Sequence[int], ranks: int, threshold: int | None
) -> dict[int, int]:
    """For each table of these numbers, how many slices it is cut into.

    Without a threshold, the largest piece is halved, and the threshold is just below it, until there are as
    many pieces as ranks. A piece here is a number of elements: a table may have too few columns to be cut so.
    Then others are cut until each rank has a slice, or no table can be cut further.
    """

    def counts_with(tried: int) -> dict[int, int]:
        return {number: _slices_for(tables[number], tried, ranks) for number in numbers}

    if threshold is not None or not numbers:
        return counts_with(threshold or 1)
    pieces = sorted(tables[number].elements for number in numbers)
    tried = pieces[-1]
    while len(pieces) < ranks:
        largest = pieces.pop()
        tried = largest - 1
        pieces = sorted([*pieces, largest // 2, largest // 2])
    while True:
        counts = counts_with(tried)
        left = [
            tables[number].rows * -(-tables[number].columns // count)
            for number, count in counts.items()
            if count < min(ranks, tables[number].columns)
        ]
        if sum(counts.values()) >= ranks or not left:
            return counts
        tried = max(left) - 1


def _columns_of_slice(columns: int, slices: int, number: int) -> int:
    """The first `columns % slices` slices are one wider."""
    return columns // slices + (number < columns % slices)


def dealt(
    tables: Sequence[Table], counts: dict[int, int], ranks: int, strategy: str
) -> list[tuple[int, int]]:
    """(table, rank) of each slice. Slices of one table differ by a column at most."""
    slices = [
        (table, _columns_of_slice(tables[table].columns, count, number))
        for table, count in counts.items()
        for number in range(count)
    ]
    if strategy == "basic":
        return [(table, position % ranks) for position, (table, _) in enumerate(slices)]
    measure = _measure(tables, slices)
    largest_first = sorted(slices, key=measure, reverse=True)  # keeps the order of equal ones
    if strategy == "memory_balanced":
        return [(table, _zigzag(position, ranks)) for position, (table, _) in enumerate(largest_first)]
    loads: list[float] = [0] * ranks  # exact integers, if only elements count
    places = []
    for table, columns in largest_first:
        rank = min(range(ranks), key=loads.__getitem__)
        loads[rank] += measure((table, columns))
        places.append((table, rank))
    return places


def _measure(
    tables: Sequence[Table], slices: Sequence[tuple[int, int]]
) -> Callable[[tuple[int, int]], float]:
    """What strategies balance: elements or, if every hotness is known, the shares of elements and reads."""

    def elements(piece: tuple[int, int]) -> int:
        return tables[piece[0]].rows * piece[1]

    if any(tables[table].hotness is None for table, _ in slices):
        return elements

    def reads(piece: tuple[int, int]) -> float:
        return tables[piece[0]].hotness * piece[1]  # type: ignore[operator]

    all_elements, all_reads = sum(map(elements, slices)), sum(map(reads, slices)) or 1.0
    return lambda piece: elements(piece) / all_elements + reads(piece) / all_reads


def _zigzag(position: int, ranks: int) -> int:
    turn, place_in_turn = divmod(position, ranks)
    return place_in_turn if turn % 2 == 0 else ranks - 1 - place_in_turn


def merged(
    tables: Sequence[Table], places: Sequence[tuple[int, int]]
) -> list[tuple[int, int, tuple[int, int]]]:
    """(table, rank, columns) of each piece, with the slices of a table on a rank as one.

    Ranks take a table's columns in their order, so that the columns of a piece are neighbours.
    """
    counts: dict[int, collections.Counter[int]] = {}
    for table, rank in places:
        counts.setdefault(table, collections.Counter())[rank] += 1
    pieces = []
    for table, of_ranks in counts.items():
        slices, taken, begin = sum(of_ranks.values()), 0, 0
        for rank in sorted(of_ranks):
            width = sum(
                _columns_of_slice(tables[table].columns, slices, taken + number)
                for number in range(of_ranks[rank])
            )
            taken += of_ranks[rank]
            pieces.append((table, rank, (begin, begin + width)))
            begin += width
    return pieces
