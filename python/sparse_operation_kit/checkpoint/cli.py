"""The command line: python -m sparse_operation_kit.checkpoint COMMAND PATH."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sparse_operation_kit.checkpoint import describe, diff, histogram, verify
from sparse_operation_kit.checkpoint.compaction import compact
from sparse_operation_kit.checkpoint.errors import CheckpointError, printable
from sparse_operation_kit.checkpoint.exporting import FORMATS, OURS, export, into_new_folder, is_model
from sparse_operation_kit.checkpoint.locate import open_checkpoint

PROGRAM = "python -m sparse_operation_kit.checkpoint"
# Exit statuses. A program that compares two checkpoints can distinguish "different" from "error".
OK, FOUND, ERROR = 0, 1, 2
# The format that each option of `export` is for.
_FORMAT_OF = {
    "absent": "saved_model",
    "row_dtype": "saved_model",
    "rows": "variable",
}
_PATH_HELP = "a checkpoint's prefix (model.ckpt-100), or a directory with checkpoints (the latest is used)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit status: 0 for success, 1 for problems or differences, 2 for errors."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except CheckpointError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader of the output has closed the pipe. Redirecting stdout avoids an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        return _fail(f"{error.filename or options.path}: {error.strerror or error}")
    except KeyboardInterrupt:
        return _fail("interrupted")


def _fail(message: str) -> int:
    print(printable(f"{PROGRAM}: {message}"), file=sys.stderr)
    return ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Inspects, checks, compares and converts checkpoints of embedding tables.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_inspect(commands)
    _add_verify(commands)
    _add_diff(commands)
    _add_convert(commands)
    _add_compact(commands)
    _add_export(commands)
    return parser


def _command(commands, name: str, run: Callable[[argparse.Namespace], int], text: str):
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.add_argument("path", metavar="PATH", type=Path, help=_PATH_HELP)
    command.set_defaults(run=run)
    return command


def _add_tables(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--table", metavar="NAME", action="append", help="only this table; can be given more than once"
    )


def _add_inspect(commands) -> None:
    command = _command(commands, "inspect", _inspect, "show the contents of a checkpoint")
    _add_tables(command)
    command.add_argument("--id", metavar="N", type=int, help="show the row, slots and counts of this id only")
    command.add_argument(
        "--brief", action="store_true", help="show only the entries: read no rows, make no histograms"
    )
    command.add_argument("--png", metavar="FILE", type=Path, help="also draw the histograms to this PNG file")


def _add_verify(commands) -> None:
    _add_tables(
        _command(
            commands,
            "verify",
            _verify,
            "check every byte of the tables and print a line for each problem; the exit status is 1 if "
            "there is a problem",
        )
    )


def _add_diff(commands) -> None:
    command = _command(
        commands,
        "diff",
        _diff,
        "show how the tables of two checkpoints differ; the exit status is 0 if they are equal, else 1",
    )
    command.add_argument("other", metavar="OTHER", type=Path, help="the newer checkpoint, named like PATH")
    _add_tables(command)


def _add_compact(commands) -> None:
    command = _command(
        commands,
        "compact",
        _compact,
        "merge a full checkpoint and the incremental ones after it into one full checkpoint",
    )
    new = "the new checkpoint's prefix (model.ckpt-100)"
    command.add_argument("--to", metavar="PREFIX", type=Path, required=True, help=new)


def _add_export(commands) -> None:
    command = _command(commands, "export", _export, "write tables in a format that other programs read")
    command.add_argument(
        "--format",
        choices=tuple(name for name in FORMATS if name != OURS),
        required=True,
        help="parquet and npy: keys and rows, in files named after tables; saved_model: a SavedModel that "
        "needs nothing but TensorFlow; saved_model_sok: one with this library's op, for large tables. With "
        "saved_model, PATH can be a whole SavedModel with this library's ops. deeprec, sok2 and variable: a "
        "whole checkpoint for DeepRec, SOK 2.x, or TensorFlow with ordinary variables",
    )
    command.add_argument("--to", metavar="DIR", type=Path, required=True, help="the new folder")
    _add_tables(command)
    command.add_argument(
        "--absent",
        metavar="[TABLE=]X",
        type=_absent,
        action="append",
        help="with saved_model, what ids without a row read as: zeros, or the value of every column, for all "
        "tables or for one (by default as in the trained model, if TensorFlow's own ops can compute that)",
    )
    command.add_argument(
        "--row_dtype",
        choices=("float32", "float16", "bfloat16", "int8"),
        help="with saved_model, the type of stored rows (float32)",
    )
    command.add_argument(
        "--rows",
        metavar="[TABLE=]N",
        type=_rows,
        action="append",
        help="with variable, how many rows the variables of all tables have, or that of one: key k is row k. "
        "Not needed for tables with use_hashtable=False",
    )


def _add_convert(commands) -> None:
    command = _command(
        commands,
        "convert",
        _convert,
        "make a checkpoint of DeepRec, SOK 2.x, recommenders-addons or TensorFlow's variables one of this "
        "library",
    )
    command.add_argument("--to", metavar="DIR", type=Path, required=True, help="the new folder")
    _add_tables(command)
    command.add_argument(
        "--optimizer",
        metavar="[TABLE=]RULE",
        type=_optimizer,
        action="append",
        default=[],
        help="the optimizer that trains all tables, or one: a rule of this library and its hyper-parameters, "
        "as in 'adagrad initial_accumulator=0.2' (by default what the names of the slots tell)",
    )


def _optimizer(text: str) -> tuple[str, str]:
    """Returns the name of a table, or "" for all, and its optimizer."""
    found = re.fullmatch(r"(?:(.*)=)?(\w+(?: +\w+=\S+)*)", text, re.DOTALL)
    if found is None:
        raise ValueError(text)
    return found[1] or "", found[2]


def _absent(text: str) -> tuple[str, str | float]:
    """Returns the name of a table, or "" for all, and what ids without a row read as."""
    name, _, value = text.rpartition("=")
    return name, value if value == "zeros" else float(value)


def _rows(text: str) -> tuple[str, int]:
    """Returns the name of a table, or "" for all, and the rows of its variable."""
    name, _, value = text.rpartition("=")
    return name, int(value)


def _inspect(options: argparse.Namespace) -> int:
    entries = open_checkpoint(options.path).select(options.table)
    tables = [entry.open() for entry in entries]
    if options.id is not None:
        return _inspect_id(options, tables)
    found = {}
    for table in tables:
        _print(describe.describe(table))
        if not options.brief or options.png is not None:
            found[table.name] = histogram.statistics(table)
        if not options.brief:
            _print(describe.describe_statistics(table, found[table.name]))
    if options.png is not None:
        try:
            histogram.save_png(options.png, found)
        except ImportError:
            raise CheckpointError(options.png, "--png needs matplotlib, which is not installed") from None
    return OK


def _inspect_id(options: argparse.Namespace, tables: list) -> int:
    if len(tables) > 1:
        names = ", ".join(repr(table.name) for table in tables)
        raise CheckpointError(options.path, f"has several tables; name one with --table: {names}")
    if not -(2**63) <= options.id < 2**63:
        raise CheckpointError(options.path, f"id {options.id} is not in [-2^63, 2^63)")
    _print(describe.describe_id(tables[0], options.id))
    return OK


def _verify(options: argparse.Namespace) -> int:
    entries = open_checkpoint(options.path).select(options.table)
    if sum(_print(verify.table_problems(entry)) for entry in entries):
        return FOUND
    total = describe.size(sum(verify.checked_bytes(entry) for entry in entries))
    print(f"{len(entries)} table{'s' * (len(entries) != 1)}, {total}: good")
    return OK


def _diff(options: argparse.Namespace) -> int:
    first, second = open_checkpoint(options.path), open_checkpoint(options.other)
    return FOUND if _print(diff.lines(first, second, options.table)) else OK


def _compact(options: argparse.Namespace) -> int:
    compact(open_checkpoint(options.path), options.to)
    return OK


def _export(options: argparse.Namespace) -> int:
    chosen = {name: getattr(options, name) for name in _FORMAT_OF}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    for name in chosen:
        if _FORMAT_OF[name] != options.format:
            raise CheckpointError(
                options.to, f"--{name} works with {_FORMAT_OF[name]}, not with {options.format}"
            )
    for name in ("absent", "rows"):
        if chosen.get(name):
            chosen[name] = _by_table(options, name, chosen[name])
    if not is_model(options.path):
        _say(export(open_checkpoint(options.path), options.to, options.format, options.table, **chosen))
        return OK
    rewrite = FORMATS[options.format].rewrite
    if rewrite is None or options.table:
        what = "--table" if options.table else f"--format {options.format}"
        raise CheckpointError(options.path, f"is a SavedModel, and {what} is for checkpoints")
    into_new_folder(options.to, lambda folder: rewrite(options.path, folder, **chosen))
    return OK


def _convert(options: argparse.Namespace) -> int:
    told = _by_table(options, "optimizer", options.optimizer)
    _say(export(open_checkpoint(options.path), options.to, OURS, options.table, trained_by=told or ""))
    return OK


def _by_table(options: argparse.Namespace, name: str, given: Iterable[tuple[str, Any]]) -> Any:
    """Returns the value for all tables, or those of tables by name."""
    of_tables = dict(given)
    if "" in of_tables and len(of_tables) > 1:
        raise CheckpointError(
            options.path, f"--{name} is given for all tables and for one: give one or other"
        )
    return of_tables.get("", of_tables)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(f"{PROGRAM}: {line}"), file=sys.stderr)


def _print(lines: Iterable[str]) -> int:
    """Prints lines, escaping names from files; returns the number of lines."""
    number = 0
    for line in lines:
        print(printable(line))
        number += 1
    return number
