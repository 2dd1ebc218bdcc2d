"""Writes full checkpoints of tables out of chains of them, a few MiB at a time."""

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sparse_operation_kit.checkpoint import manifest as manifests
from sparse_operation_kit.checkpoint import npy
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import UNFINISHED, Table
from sparse_operation_kit.checkpoint.rows import columns_of, count_rows, row_blocks, waiting_ids

_KEPT_FOR_SERVING = ("values",)


class ArrayWriter:
    """A .npy file in the making, whose number of rows is known before."""

    def __init__(self, path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Makes the file, which must not be there yet."""
        self._file: BinaryIO = open(path, "xb")  # noqa: SIM115 - closed by finish
        self._path = path
        self._dtype, self._shape = np.dtype(dtype), shape
        self._bytes, self._checksums, self._crc = 0, [], 0
        self._write(npy.header(self._dtype, shape))

    def append(self, rows: np.ndarray) -> None:
        """Adds rows."""
        self._write(np.ascontiguousarray(rows, self._dtype).tobytes())

    def finish(self) -> dict[str, Any]:
        """Syncs and closes the file; returns what the manifest says of it."""
        if self._bytes % manifests.BLOCK_BYTES:
            self._checksums.append(self._crc)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {
            "file": f"{self._path.parent.name}/{self._path.name}",
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


def write_full(table: Table, folder: Path, weights_only: bool = False) -> int:
    """Writes a table, its chain applied, as a full checkpoint of as many shards. Returns its manifest's CRC.

    The folder appears under its name once it is complete and on the disk.

    Args:
      table: To be written.
      folder: The table's folder, which must not be there yet.
      weights_only: Leaves out the optimizer, the rows' counts and the ids that wait for admission.

    Raises:
      CheckpointError: `table` is damaged, or its rows have yet to take steps that they missed.
    """
    table.require_current()
    unfinished = folder.with_name(folder.name + UNFINISHED)
    unfinished.mkdir(parents=True)
    try:
        shards = [
            _write_shard(table, unfinished, number, weights_only) for number in range(len(table.last.shards))
        ]
        checksum = _write_manifest(table, unfinished, shards, weights_only)
        os.rename(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_folder(folder.parent)
    sync_folder(folder.parent.parent)
    return checksum


def sync_folder(folder: Path) -> None:
    """Has the system write the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_shard(table: Table, folder: Path, number: int, weights_only: bool) -> dict[str, Any]:
    shard = folder / f"shard-{number:05d}"
    shard.mkdir()
    part = (number, len(table.last.shards))
    columns = [name for name in columns_of(table) if name in _KEPT_FOR_SERVING or not weights_only]
    rows = count_rows(table, part)
    specs = {name: table.last.shards[0].arrays[name].spec for name in ("keys", *columns)}
    writers = {
        name: ArrayWriter(shard / f"{name}.npy", spec.dtype, (rows, *spec.shape[1:]))
        for name, spec in specs.items()
    }
    for block in row_blocks(table, columns, part):
        writers["keys"].append(block.keys)
        for name in columns:
            writers[name].append(block.columns[name])
    arrays = {name: writer.finish() for name, writer in writers.items()}
    arrays.update(_write_filter(table, shard, part, weights_only))
    sync_folder(shard)
    return {"rows": rows, "table_rows": rows, "arrays": arrays}


def _write_filter(table: Table, shard: Path, part: tuple[int, int], weights_only: bool) -> dict[str, Any]:
    """The arrays of a table's admission filter."""
    kind = (table.manifest.table["admission"] or {}).get("kind")
    if kind == "counter":
        waiting = waiting_ids(table, part)
        arrays = {
            name: array[:0] if weights_only else array
            for name, array in zip(manifests.WAITING, waiting, strict=True)
        }
    elif kind == "bloom":
        counters = table.last.shards[part[0]].array("bloom_counters")
        arrays = {"bloom_counters": np.zeros_like(counters) if weights_only else counters}
    else:
        arrays = {}
    written = {}
    for name, array in arrays.items():
        writer = ArrayWriter(shard / f"{name}.npy", array.dtype, array.shape)
        writer.append(array)
        written[name] = writer.finish()
    return written


def _write_manifest(table: Table, folder: Path, shards: list[dict[str, Any]], weights_only: bool) -> int:
    source = table.manifest
    optimizer = source.optimizer
    document = {
        "format": manifests.FORMAT,
        "version": manifests.VERSION,
        "kind": "full",
        "block_bytes": manifests.BLOCK_BYTES,
        "table": source.table,
        "steps": source.steps,
        "uses": source.uses,
        "rows": sum(shard["rows"] for shard in shards),
        "optimizer": None,
        "chain": [],
        "shards": shards,
    }
    if optimizer is not None and not weights_only:
        document["optimizer"] = {
            "name": optimizer.name,
            "steps": optimizer.steps,
            "hyper": optimizer.hyper,
            "slots": [
                {"name": slot.name, "width": slot.width, "fill": slot.fill} for slot in optimizer.slots
            ],
            "history": None,
        }
    text = json.dumps(document, indent=1, ensure_ascii=False).removesuffix("\n}").encode() + b",\n "
    text += b'"crc32": %d\n}' % zlib.crc32(text)
    with open(folder / manifests.FILE, "xb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    return zlib.crc32(text)


def refuse_existing(path: Path) -> None:
    """Raises CheckpointError where there is something at `path` already."""
    if os.path.lexists(path):
        raise CheckpointError(path, "is there already, and nothing is written over it")
