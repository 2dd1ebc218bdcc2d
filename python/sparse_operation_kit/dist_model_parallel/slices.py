"""Slices of tables by columns, and the ranks that get them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

from sparse_operation_kit.dist_model_parallel.tables import Table


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
