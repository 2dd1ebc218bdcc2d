"""The command `plan`: prints where tables would be, before anything is built."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from sparse_operation_kit.dist_model_parallel.placement import (
    BYTES_PER_ELEMENT,
    STRATEGIES,
    Options,
    Piece,
    Placement,
    Table,
    place,
)

_TABLES = """\
TABLES is a JSON file with a list of objects. `input_dim` and `output_dim` are a table's rows and columns.
`name`, `combiner` ("sum" or "mean") and `hotness` (ids per sample, over all inputs of the table) may be left
out. If every table has a hotness, the strategies "memory_*" balance memory and lookups, not memory alone.
"""
_KEYS = {
    "input_dim": "rows",
    "output_dim": "columns",
    "combiner": "combiner",
    "hotness": "hotness",
    "name": "name",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status: 0, or 1 with a message on standard error."""
    flags = _parser().parse_args(arguments)
    options = Options(
        flags.strategy, flags.column_slice_threshold, flags.row_slice_threshold, flags.data_parallel_threshold
    )
    try:
        placement = place(read_tables(flags.tables), flags.ranks, options)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if flags.json:
        print(json.dumps(_as_json(placement), indent=1))
    else:
        print(listing(placement))
        print()
        print(bars(placement))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sparse_operation_kit.dist_model_parallel")
    plan = parser.add_subparsers(dest="command", required=True).add_parser(
        "plan", help="print where tables would be", epilog=_TABLES
    )
    add = plan.add_argument
    add("tables", metavar="TABLES", help="the tables, a JSON file")
    add("--ranks", type=int, required=True, help="the number of ranks")
    add("--strategy", choices=STRATEGIES, default="basic", help="default: basic")
    add("--column_slice_threshold", type=int, help="the maximum number of elements in a slice of columns")
    add("--row_slice_threshold", type=int, help="tables with at least this many elements are sliced by rows")
    add("--data_parallel_threshold", type=int, help="tables with at most this many elements are replicated")
    add("--json", action="store_true", help="print JSON")
    return parser


def read_tables(path: str) -> list[Table]:
    """Reads tables from a JSON file.

    Raises:
      OSError: the file cannot be read.
      ValueError: the file is not such a list; the message names the file and the table.
    """
    try:
        listed = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(listed, list):
        raise ValueError(f"{path} has no list of tables, but {type(listed).__name__}")
    return [_table(entry, f"{path}: table {number}") for number, entry in enumerate(listed)]


def _table(entry: Any, who: str) -> Table:
    if not isinstance(entry, dict):
        raise ValueError(f"{who} is no object, but {entry!r}")
    unknown = sorted(set(entry) - set(_KEYS))
    if unknown:
        raise ValueError(f"{who} has {unknown[0]!r}; known are {', '.join(_KEYS)}")
    for key in ("input_dim", "output_dim"):
        if key not in entry:
            raise ValueError(f"{who} has no {key!r}")
    combiner, hotness = entry.get("combiner"), entry.get("hotness")
    if combiner not in (None, "sum", "mean"):
        raise ValueError(f"{who}: combiner must be 'sum', 'mean' or null, not {combiner!r}")
    if hotness is not None and (isinstance(hotness, bool) or not isinstance(hotness, (int, float))):
        raise ValueError(f"{who}: hotness must be a number, not {hotness!r}")
    if not isinstance(entry.get("name", ""), str):
        raise ValueError(f"{who}: name must be a text, not {entry['name']!r}")
    return Table(**{_KEYS[key]: value for key, value in entry.items()})


def _as_json(placement: Placement) -> dict[str, Any]:
    return {
        "ranks": [
            {
                "rank": rank,
                "bytes": placement.bytes_on(rank),
                "lookups": placement.lookups_on(rank),
                "pieces": [
                    {
                        "table": piece.table,
                        "name": placement.tables[piece.table].name,
                        "rows": piece.rows,
                        "columns": piece.columns,
                        "group": piece.group,
                        "offset": piece.offset,
                    }
                    for piece in placement.on_rank(rank)
                ],
            }
            for rank in range(placement.ranks)
        ]
    }


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
