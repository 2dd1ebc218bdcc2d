"""The command `plan`: where tables would be, before anything is built."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from sparse_operation_kit.dist_model_parallel import drawing
from sparse_operation_kit.dist_model_parallel.placement import Placement, place
from sparse_operation_kit.dist_model_parallel.tables import STRATEGIES, Options, Table

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
        print(drawing.listing(placement))
        print()
        print(drawing.bars(placement))
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
