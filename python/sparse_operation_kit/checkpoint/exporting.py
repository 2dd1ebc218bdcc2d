"""Exports tables to formats that other programs read: files, SavedModels, checkpoints of other systems."""

from __future__ import annotations

import contextlib
import os
import shutil
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sparse_operation_kit.checkpoint import other_systems, prefix_lock
from sparse_operation_kit.checkpoint.compaction import refuse_to_write
from sparse_operation_kit.checkpoint.errors import CheckpointError, check_path
from sparse_operation_kit.checkpoint.format import COLUMNS, WAITING, Table
from sparse_operation_kit.checkpoint.locate import Checkpoint
from sparse_operation_kit.checkpoint.reader import Bundle
from sparse_operation_kit.checkpoint.rows import columns_of, count_rows, row_blocks, waiting_ids
from sparse_operation_kit.checkpoint.verify import require_distinct_keys

# The file of a SavedModel's graphs.
MODEL_FILE = "saved_model.pb"
# Approximate size of a row group of a Parquet file, which readers load at once.
_ROW_GROUP_BYTES = 64 << 20

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Format:
    """What writes a format.

    Attributes:
      write: Writes tables into a new folder, given the tables, the folder, and options by name. May return
        lines that say what of the tables the format has no place for.
      rewrite: The same for a whole SavedModel, given its folder; None: the format is for tables only.
      has_slots: Whether tables are written with the optimizer's slots.
    """

    write: Callable[..., list[str] | None]
    rewrite: Callable[..., None] | None = None
    has_slots: bool = False


# The format of this library's own checkpoints.
OURS = "checkpoint"
# The formats by name. Those that need graphs are added by higher layers.
FORMATS: dict[str, Format] = {}


def export(
    checkpoint: Checkpoint,
    to: Path,
    file_format: str,
    names: Sequence[str] | None = None,
    trained_by: str | Mapping[str, str] = "",
    **options: Any,
) -> list[str]:
    """Applies the chains of a checkpoint's tables and writes the tables into a new folder.

    Args:
      checkpoint: The checkpoint.
      to: The folder, which must not exist. It appears when it is complete.
      file_format: One of `FORMATS`.
      names: The names of the tables; None for all.
      trained_by: The optimizer of other systems' tables, of all or by name: a rule, and hyper-parameters
        after it, as in "adagrad initial_accumulator=0.2". Of others it is the one that the slots' names tell.
      **options: With "saved_model", the fields of `serving.stock_tables.StockOptions`; with "variable",
        `rows` of `other_systems.write_variable`.

    Returns:
      Lines that say what of the tables the format has no place for, if it is another system's checkpoint.

    Raises:
      CheckpointError: A table is damaged, rows still lack steps of exact Adam, a package that the format
        needs is not installed, or `to` cannot be written. Nothing is left then.
    """
    refuse_to_write(_absolute(to), _absolute(to))
    made = FORMATS[file_format]
    tables = []
    for entry in checkpoint.select(list(names) if names else None):
        told = trained_by.get(entry.name, "") if isinstance(trained_by, Mapping) else trained_by
        tables.append(entry.open(told if made.has_slots else None))
        tables[-1].require_current()
        require_distinct_keys(tables[-1])
    return into_new_folder(to, lambda unfinished: made.write(tables, unfinished, **options)) or []


def is_model(path: Path) -> bool:
    """Returns whether a path is the folder of a SavedModel."""
    return (path / MODEL_FILE).is_file()


def into_new_folder(to: Path, write: Callable[[Path], _Result]) -> _Result:
    """Calls `write` with a folder to create, which becomes `to` when it is complete; returns its result.

    Raises:
      CheckpointError: `to` exists, cannot be written, or another process writes it. Nothing is left then.
    """
    to = _absolute(to)
    refuse_to_write(to, to)
    unfinished = to.with_name(f"{to.name}.sok-unfinished")
    try:
        lock = prefix_lock.acquire(str(to), patience=0)
    except (prefix_lock.PrefixInUseError, OSError) as error:
        raise CheckpointError(to, f"cannot be written: {error}") from None
    with lock:
        # Of a killed process.
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            result = write(unfinished)
            os.rename(unfinished, to)
            return result
        except OSError as error:
            raise CheckpointError(to, f"cannot be written: {error.strerror or error}") from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _absolute(to: Path) -> Path:
    return Path(os.path.abspath(check_path(to)))


def file_name(table: Table) -> str:
    """Returns a table's name, quoted so that it can be a file name."""
    return urllib.parse.quote(table.name, safe="")


def _each(write_table: Callable[[Table, Path], None]) -> Callable[..., None]:
    def write(tables: Sequence[Table], folder: Path) -> None:
        folder.mkdir()
        for table in tables:
            write_table(table, folder)

    return write


def _write_npy(table: Table, folder: Path) -> None:
    target = folder / file_name(table)
    target.mkdir()
    rows = count_rows(table)
    types = {"keys": ("<i8", (rows,)), "values": ("<f4", (rows, table.dim))}
    with contextlib.ExitStack() as opened:
        files = {name: opened.enter_context(open(target / f"{name}.npy", "xb")) for name in types}
        for name, (dtype, shape) in types.items():
            header = {"descr": dtype, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(files[name], header)
        for block in row_blocks(table, ("values",)):
            files["keys"].write(block.keys.tobytes())
            files["values"].write(block.columns["values"].tobytes())


def _write_parquet(table: Table, folder: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CheckpointError(
            folder, "Parquet files need the package pyarrow, which is not installed: pip install pyarrow"
        ) from None
    counts = [name for name in columns_of(table) if name != "values" and not name.startswith("slot-")]
    row = pyarrow.list_(pyarrow.float32(), table.dim)
    schema = pyarrow.schema(
        [("key", pyarrow.int64()), ("values", row), *((name, pyarrow.int64()) for name in counts)]
    )
    path = folder / f"{file_name(table)}.parquet"
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for group in _row_groups(table, ["values", *counts]):
            keys = np.concatenate([block.keys for block in group])
            values = np.concatenate([block.columns["values"] for block in group])
            others = [np.concatenate([block.columns[name] for block in group]) for name in counts]
            lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), type=row)
            writer.write_table(
                pyarrow.table([pyarrow.array(keys), lists, *map(pyarrow.array, others)], schema=schema),
                row_group_size=len(keys),
            )


def _row_groups(table: Table, columns: list[str]):
    """Yields lists of blocks of rows, each list the size of a row group."""
    group, size = [], 0
    for block in row_blocks(table, columns):
        group.append(block)
        size += block.keys.nbytes + sum(array.nbytes for array in block.columns.values())
        if size >= _ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


FORMATS["parquet"] = Format(_each(_write_parquet))
FORMATS["npy"] = Format(_each(_write_npy))
FORMATS["deeprec"] = Format(other_systems.write_deeprec, has_slots=True)
FORMATS["sok2"] = Format(other_systems.write_sok2, has_slots=True)
FORMATS["variable"] = Format(other_systems.write_variable, has_slots=True)

_MAX_COUNT = 1 << 62


def write_checkpoint(tables: Sequence[Table], folder: Path) -> list[str]:
    """Writes a checkpoint of tables that other systems wrote, and of its ordinary variables.

    The tables are in one shard, which any number of ranks restores. What the other system does not tell of
    them is what tables have by default; a table that restores them has its own filter, limits, eviction and
    initial rows.

    Returns:
      Lines that say what of the tables nothing is made of.

    Raises:
      CheckpointError: A table is one of this library; a table or a variable is damaged, or nothing can be
        written.
    """
    for table in tables:
        if not table.last.system:
            raise CheckpointError(
                table.last.path, "is a table of this library: compact makes one full checkpoint of it"
            )
    folder.mkdir()
    bundle = other_systems.new_bundle(tables, folder)
    for table in tables:
        _write_table(table, bundle)
        if table.last.slots_of == "AdamAsync":
            powers = other_systems.powers_of_async(table.last.prefix, table.name)
            for name, (_, power) in powers.items():
                bundle.add(name, power)
    other_systems.finish(bundle, tables, folder)
    return other_systems.left_out("this library", tables, [*COLUMNS, *WAITING])


def _write_table(table: Table, bundle: Bundle) -> None:
    rows, columns = count_rows(table), columns_of(table)
    first = table.last.shards[0].arrays
    arrays = {
        name: bundle.new_array(
            f"{table.name}#0/{name}", first[name].dtype.type, (rows, *first[name].shape[1:])
        )
        for name in ["keys", *columns]
    }
    for block in row_blocks(table, columns):
        bundle.write(arrays["keys"], block.keys)
        for name, values in block.columns.items():
            bundle.write(arrays[name], _counts(table, name, values))
    filter_freq = 0
    if any(WAITING[0] in shard.arrays for link in table.links for shard in link.shards):
        waiting = [_counts(table, name, one) for name, one in zip(WAITING, waiting_ids(table))]
        for name, numbers in zip(WAITING, waiting):
            bundle.write(bundle.new_array(f"{table.name}#0/{name}", np.int64, numbers.shape), numbers)
        filter_freq = int(waiting[1].max(initial=0)) + 1
    bundle.add_table(table.saved, rows, filter_freq)


def _counts(table: Table, name: str, values: np.ndarray) -> np.ndarray:
    """Returns the numbers that a restore makes of those of another system, where -1 stands for none."""
    limits = {
        "frequency": _MAX_COUNT,
        "waiting_counts": _MAX_COUNT,
        "last_step": table.last.steps,
        "waiting_last_step": table.last.steps,
    }
    if name not in limits:
        return values
    if values.min(initial=0) < -1:
        raise CheckpointError(table.last.path, f"has the negative number {values.min()} as {name}")
    return np.clip(values, 0, limits[name])


# What `convert` writes.
FORMATS[OURS] = Format(write_checkpoint, has_slots=True)
