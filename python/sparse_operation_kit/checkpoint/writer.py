"""Writes chains of checkpoints of tables as full checkpoints, a few MiB at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sparse_operation_kit.checkpoint import manifest as manifests
from sparse_operation_kit.checkpoint import npy, own_files, table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import Shard, Table
from sparse_operation_kit.checkpoint.rows import RowBlock, columns_of, count_rows, row_blocks, waiting_ids
from sparse_operation_kit.newer_python import removesuffix


class ArrayWriter:
    """Writes a .npy file of a known shape in pieces."""

    def __init__(self, path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Creates the file, which must not exist."""
        self._file: BinaryIO = open(path, "xb", opener=own_files.opener)  # noqa: SIM115 - closed by finish
        self._dtype, self._shape = np.dtype(dtype), shape
        self._bytes, self._crc = 0, 0
        self._checksums: list[int] = []
        self._write(npy.header(self._dtype, shape))

    def append(self, rows: np.ndarray) -> None:
        """Appends rows."""
        self._write(np.ascontiguousarray(rows, self._dtype).tobytes())

    def finish(self) -> dict[str, Any]:
        """Syncs and closes the file; returns its description for the manifest, without its name."""
        if self._bytes % manifests.BLOCK_BYTES:
            self._checksums.append(self._crc)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {
            "dtype": self._dtype.str,
            "shape": list(self._shape),
            "bytes": self._bytes,
            "crc32": self._checksums,
        }

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        view = memoryview(data)
        while view:
            piece = view[: manifests.BLOCK_BYTES - self._bytes % manifests.BLOCK_BYTES]
            self._crc = zlib.crc32(piece, self._crc)
            self._bytes += len(piece)
            if self._bytes % manifests.BLOCK_BYTES == 0:
                self._checksums.append(self._crc)
                self._crc = 0
            view = view[len(piece) :]


# The number of rows of a whole array that are written at a time.
_ROWS_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class WholeArray:
    """An array without rows of the table: its name, type and shape, and its contents piece by piece."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    pieces: Iterable[np.ndarray]


class RowSource:
    """What a full checkpoint is written from, shard by shard: a table with its chain applied.

    Subclasses write it with other keys or rows.
    """

    def __init__(self, table: Table) -> None:
        """`table` is opened with its chain."""
        self.table = table

    def count(self, shard: int) -> int:
        """Returns the number of rows of a shard."""
        return count_rows(self.table, shard)

    def blocks(self, columns: Sequence[str], shard: int) -> Iterator[RowBlock]:
        """Yields the rows of a shard."""
        return row_blocks(self.table, columns, shard)

    def waiting(self, shard: int) -> tuple[np.ndarray, ...]:
        """Returns a shard's ids that wait for admission, their counts and last steps."""
        return waiting_ids(self.table, shard)

    def bloom(self, shard: int) -> Iterator[WholeArray]:
        """Yields the arrays of a shard's Bloom filter."""
        yield from _copies(self.table.last.shards[shard], manifests.BLOOM)


def _copies(shard: Shard, names: Sequence[str]) -> Iterator[WholeArray]:
    """Yields those of these arrays that a shard has."""
    for name in names:
        if name in shard.arrays:
            array = shard.arrays[name]
            yield WholeArray(name, array.spec.dtype, array.spec.shape, array.blocks(_ROWS_AT_ONCE))


def write_full(table: Table, place: Path, source: RowSource | None = None) -> int:
    """Applies a table's chain and writes a full checkpoint with the same number of shards.

    Nothing must be at `place`. The manifest gets its name when everything is on disk. `source` has the rows
    to write if they are not the table's own.

    Returns:
      The CRC-32 of the manifest file.

    Raises:
      CheckpointError: `table` is damaged, or its rows still lack steps of exact Adam.
    """
    contents = _Contents(table.manifest.table, columns_of(table), training=True)
    return _write(source or RowSource(table), place, contents)


def write_for_serving(table: Table, place: Path) -> int:
    """Like `write_full`, but only for lookups: no optimizer, no counts, no limits, int64 keys."""
    description = dict(table.manifest.table)
    if description["hashed"]:
        description.update({"capacity": 0, "on_full": "error", "key_dtype": "int64", "eviction": None})
    admission = description["admission"]
    if admission is not None:
        kept = ("filter_freq", "default_value")
        description["admission"] = {"kind": "counter", **{name: admission[name] for name in kept}}
    return _write(RowSource(table), place, _Contents(description, ["values"], training=False))


@dataclass(frozen=True)
class _Contents:
    """The parts of a table to write: its description, its columns, and whether to write training state."""

    description: dict[str, Any]
    columns: list[str]
    training: bool


def _write(source: RowSource, place: Path, contents: _Contents) -> int:
    table = source.table
    table.require_current()
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        shards = [_write_shard(source, place, shard.number, contents) for shard in table.last.shards]
        checksum = _write_manifest(table, place, shards, contents)
        sync_folder(place.parent)
        table_files.publish(place)
    except BaseException:
        with contextlib.suppress(OSError):
            table_files.remove(place)
        raise
    sync_folder(place.parent)
    sync_folder(place.parent.parent)
    return checksum


def sync_folder(folder: Path) -> None:
    """Syncs a folder, so that the names in it are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_shard(source: RowSource, place: Path, number: int, contents: _Contents) -> dict[str, Any]:
    rows = source.count(number)
    arrays_of_first = source.table.last.shards[0].arrays
    specs = {name: arrays_of_first[name].spec for name in ("keys", *contents.columns)}

    def write_to(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> ArrayWriter:
        return ArrayWriter(table_files.file_of(place, _array_file(number, name)), dtype, shape)

    writers = {name: write_to(name, spec.dtype, (rows, *spec.shape[1:])) for name, spec in specs.items()}
    for block in source.blocks(contents.columns, number):
        writers["keys"].append(block.keys)
        for name in contents.columns:
            writers[name].append(block.columns[name])
    arrays = {name: writer.finish() for name, writer in writers.items()}
    for array in _whole_arrays(source, number, contents):
        writer = write_to(array.name, array.dtype, array.shape)
        for piece in array.pieces:
            writer.append(piece)
        arrays[array.name] = writer.finish()
    arrays = {name: {"file": _array_file(number, name), **array} for name, array in arrays.items()}
    return {"rows": rows, "table_rows": rows, "arrays": arrays}


def _array_file(shard: int, name: str) -> str:
    return f"shard-{shard:05d}/{name}.npy"


def _whole_arrays(source: RowSource, shard: int, contents: _Contents) -> Iterator[WholeArray]:
    """Yields a shard's given initial rows and the arrays of its admission filter."""
    yield from _copies(source.table.first.shards[shard], [manifests.INITIAL_ROWS])
    kind = (contents.description["admission"] or {}).get("kind")
    if kind == "bloom":
        yield from source.bloom(shard)
    if kind != "counter":
        return
    waiting = source.waiting(shard) if contents.training else [np.zeros([0], np.int64)] * 3
    for name, array in zip(manifests.WAITING, waiting):
        yield WholeArray(name, array.dtype, array.shape, [array])


def _write_manifest(table: Table, place: Path, shards: list[dict[str, Any]], contents: _Contents) -> int:
    optimizer = table.manifest.optimizer if contents.training else None
    document = {
        "format": manifests.FORMAT,
        "version": manifests.version_of(contents.description),
        "kind": "full",
        "table": contents.description,
        "steps": table.manifest.steps,
        "uses": table.manifest.uses,
        "rows": sum(shard["rows"] for shard in shards),
        "optimizer": None if optimizer is None else _optimizer(optimizer),
        "chain": [],
        "block_bytes": manifests.BLOCK_BYTES,
        "shards": shards,
    }
    members = removesuffix(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False), "\n}")
    text = members.encode() + b",\n "
    text += b'"crc32": %d\n}' % zlib.crc32(text)
    path = table_files.file_of(place, manifests.FILE + table_files.UNFINISHED)
    with open(path, "xb", opener=own_files.opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return zlib.crc32(text)


def _optimizer(optimizer: manifests.Optimizer) -> dict[str, Any]:
    description = dataclasses.asdict(optimizer)
    for floats, name in [
        *((description["hyper"], name) for name in description["hyper"]),
        *((slot, "fill") for slot in description["slots"]),
    ]:
        if not math.isfinite(floats[name]):
            floats[name] = str(floats[name])
    return description


def refuse_existing(path: Path) -> None:
    """Raises CheckpointError if `path` exists."""
    if os.path.lexists(path):
        raise CheckpointError(path, "exists already, and is not overwritten")
