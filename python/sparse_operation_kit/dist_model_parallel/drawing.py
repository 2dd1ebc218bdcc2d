"""A placement as text: a list of its pieces, and a bar for each rank."""

from __future__ import annotations

from collections.abc import Sequence

from sparse_operation_kit.dist_model_parallel.placement import BYTES_PER_ELEMENT, Piece, Placement
from sparse_operation_kit.dist_model_parallel.tables import Table

_BAR = 60
_MARKS = "#=+*o%@&x~:-"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def listing(placement: Placement) -> str:
    """A table with a line for each piece."""
    header = ("rank", "table", "rows", "columns", "kind", "group", "offset", "size")
    lines = [header]
    for piece in placement.pieces:
        table = placement.tables[piece.table]
        lines.append(
            (
                str(piece.rank),
                name(piece.table, table),
                f"{piece.rows[0]}:{piece.rows[1]}",
                f"{piece.columns[0]}:{piece.columns[1]}",
                _kind(placement, piece),
                str(piece.group),
                str(piece.offset),
                size(BYTES_PER_ELEMENT * piece.elements),
            )
        )
    return "\n".join(_aligned(lines))


def bars(placement: Placement) -> str:
    """For each rank its bytes, its lookups if they are known, and a bar that is cut by table.

    A table has the same mark on all ranks. The longest bar is that of the rank with the most bytes.
    """
    most = max(placement.bytes_on(rank) for rank in range(placement.ranks))
    lines = []
    for rank in range(placement.ranks):
        lookups = placement.lookups_on(rank)
        lines.append(
            (
                f"rank {rank}",
                size(placement.bytes_on(rank)),
                "" if lookups is None else f"{lookups:.0f} read",
                _bar(placement.on_rank(rank), most),
            )
        )
    used = sorted({piece.table for piece in placement.pieces})
    legend = "  ".join(f"{_mark(table)} {name(table, placement.tables[table])}" for table in used)
    return "\n".join([*_aligned(lines), "", legend])


def name(number: int, table: Table) -> str:
    """The table's name, or its number."""
    return table.name or f"table {number}"


def size(number: int) -> str:
    """A number of bytes with a unit."""
    value, unit = float(number), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _kind(placement: Placement, piece: Piece) -> str:
    if piece.table in placement.replicated:
        return "replicated"
    if piece.table in placement.row_sliced:
        return "rows"
    return "whole" if piece.columns == (0, placement.tables[piece.table].columns) else "columns"


def _mark(table: int) -> str:
    return _MARKS[table % len(_MARKS)]


def _bar(pieces: Sequence[Piece], most: int) -> str:
    """Each piece's end is rounded, not its length, so that the bar's length is right."""
    bar, end = "", 0
    for piece in pieces:
        end += BYTES_PER_ELEMENT * piece.elements
        bar += _mark(piece.table) * (round(_BAR * end / most) - len(bar))
    return bar or "."


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
