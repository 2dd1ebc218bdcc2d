"""Where tables are: a pure function from their sizes to pieces on ranks. All ranks compute the same.

A table is replicated, sliced by rows over all ranks, or sliced by columns into one or more slices. Slices are
distributed over ranks by a strategy. Slices of one table that meet on a rank are one piece. Pieces of one
width and combiner on a rank form a group, which is one variable: the pieces follow each other in its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Tuple

from sparse_operation_kit.dist_model_parallel.slices import dealt, merged, slice_counts
from sparse_operation_kit.dist_model_parallel.tables import Options, Table, check

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
