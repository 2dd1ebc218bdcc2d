"""Reads the rows of a table after applying its chain: later checkpoints replace and delete rows."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import COLUMNS, WAITING, Array, Link, Shard, Table
from sparse_operation_kit.newer_python import removeprefix

# Bytes of the rows that are put into order at once.
_BUCKET_BYTES = 8 << 20


def in_order(
    folder: Path | None, rows: int, pieces: Iterable[tuple[np.ndarray, dict[str, np.ndarray]]]
) -> Iterator[tuple[int, int, np.ndarray, dict[str, np.ndarray]]]:
    """Yields rows by their places, for consecutive ranges of all places.

    Memory: a few ranges' rows, some 8 MiB each. Disk: that of the rows, in a file without a name.

    Args:
      folder: Where the file can be; None: in the folder for temporary files.
      rows: The number of places.
      pieces: Places int64 [n] in [0, rows), each at most once over all pieces, and n rows of each column.

    Yields:
      The range's first place and the one after its last, and the places of it that have a row, less the
      first, with their rows of each column.

    Raises:
      OSError: The disk has no room.
    """
    pieces = iter(pieces)
    first = next(pieces, None)
    columns = {} if first is None else first[1]
    record = np.dtype(
        [("place", np.int64), *((name, array.dtype, array.shape[1:]) for name, array in columns.items())]
    )
    of_bucket = max(1, _BUCKET_BYTES // record.itemsize)
    counts = np.zeros([-(-rows // of_bucket)], np.int64)
    with tempfile.TemporaryFile(dir=folder) as file:
        for places, arrays in [] if first is None else itertools.chain([first], pieces):
            records = np.empty([len(places)], record)
            records["place"] = places
            for name, array in arrays.items():
                records[name] = array
            buckets = places // of_bucket
            order = np.argsort(buckets, kind="stable")
            records, buckets = records[order], buckets[order]
            for begin, end in _runs(buckets):
                bucket = buckets[begin]
                file.seek((bucket * of_bucket + counts[bucket]) * record.itemsize)
                file.write(records[begin:end].tobytes())
                counts[bucket] += end - begin
        for bucket, count in enumerate(counts):
            begin = bucket * of_bucket
            file.seek(begin * record.itemsize)
            records = np.frombuffer(file.read(count * record.itemsize), record)
            arrays = {name: records[name] for name in columns}
            yield begin, min(begin + of_bucket, rows), records["place"] - begin, arrays


def _runs(ordered: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields where the equal numbers of an array begin and end."""
    edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    yield from zip(edges[:-1], edges[1:])


# Approximate size of a block of rows in memory.
_TARGET_BYTES = 4 << 20
# The beginnings of the names of another system's slots, and of their keys: cc/checkpoint/foreign_tables.h.
_SLOT = "saved-slot-"
_SLOT_KEYS = "saved-slot-keys-"
# The same of a slot that was taken.
_OUR_SLOT = "slot-"
_KEYS_OF_SLOT = "slot-keys-"
_KEYS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class RowBlock:
    """Some rows of a table: `keys` int64 [n], and n rows of each requested column."""

    keys: np.ndarray
    columns: dict[str, np.ndarray]


def columns_of(table: Table) -> list[str]:
    """Returns the names of all arrays with one entry per row, except the keys.

    Those of slots of another system's table are there if it was opened with an optimizer.
    """
    slots = table.last.optimizer.slots if table.last.optimizer else ()
    # Parts of other systems may have different ones.
    per_row = [name for name in COLUMNS if all(name in shard.arrays for shard in table.last.shards)]
    return ["values", *(f"slot-{slot.name}" for slot in slots), *per_row]


def row_blocks(
    table: Table, columns: Sequence[str] = ("values",), shard: int | None = None
) -> Iterator[RowBlock]:
    """Yields the table's rows in blocks, each key once.

    Memory: a few MiB, and 8 bytes for each key that the deltas of the chain hold or delete. If another system
    saved a slot's keys in an order of their own, also 25 bytes for each key of a part, and a file without a
    name in the folder for temporary files, which takes as much as the slot.

    Args:
      table: The table, opened with its chain. Rows come in the order of the chain's folders, without those
        that a later folder replaces or deletes.
      columns: The arrays to read besides the keys.
      shard: The number of the shard to read; None: all shards.

    Raises:
      CheckpointError: A file is damaged; rows that were yielded before are valid.
    """
    covered = [_covered(link, shard) for link in table.links[1:]]
    for number, link in enumerate(table.links):
        fills = {f"slot-{slot.name}": slot.fill for slot in (link.optimizer.slots if link.optimizer else ())}
        for one in _shards(link, shard):
            yield from _of_shard(one, columns, covered[number:], fills)


def count_rows(table: Table, shard: int | None = None) -> int:
    """Returns the number of rows of the table, or of one of its shards."""
    if len(table.links) == 1:
        return table.last.rows if shard is None else table.last.shards[shard].rows
    return sum(len(block.keys) for block in row_blocks(table, (), shard))


def waiting_ids(table: Table, shard: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the ids that wait for admission, their counts, and the steps of their last use; int64 [w].

    Memory: 48 bytes for each of them.
    """
    parts: list[tuple[np.ndarray, ...]] = []
    later = np.zeros([0], np.int64)
    for link in reversed(table.links):
        arrays = [_whole(link, name, shard) for name in WAITING]
        keep = ~_contains(later, arrays[0])
        parts.append(tuple(array[keep] for array in arrays))
        later = np.union1d(later, np.concatenate([arrays[0], _whole(link, "waiting_deleted", shard)]))
    return tuple(np.concatenate(column) for column in zip(*reversed(parts)))


def find_row(table: Table, key: int) -> dict[str, np.ndarray] | None:
    """Returns the row of one key, an array per column; None if the key has no row.

    Reads the keys of the key's shard, and the blocks that contain its row.
    """
    for link in reversed(table.links):
        found = link.find(key)
        if found is not None:
            shard, row = found
            columns = {name: shard.arrays[name].read(row, row + 1)[0] for name in columns_of(table)}
            return {**columns, **{slot: _slot(link, slot, shard, row, key) for slot in foreign_slots(table)}}
        if link.find(key, "deleted") is not None:
            return None
    return None


def find_waiting(table: Table, key: int) -> tuple[int, int] | None:
    """Returns the count and the step of the last use of an id that waits for admission; else None."""
    for link in reversed(table.links):
        found = link.find(key, "waiting_keys")
        if found is not None:
            shard, row = found
            count, last_step = (
                int(shard.arrays[name].read(row, row + 1)[0])
                for name in ("waiting_counts", "waiting_last_step")
            )
            return count, last_step
        if link.find(key, "waiting_deleted") is not None:
            return None
    return None


def foreign_slots(table: Table) -> list[str]:
    """Returns the names of the slots that another system saved with a table."""
    arrays = table.last.shards[0].arrays
    return [
        name[len(_SLOT) :] for name in arrays if name.startswith(_SLOT) and not name.startswith(_SLOT_KEYS)
    ]


def _slot(link: Link, slot: str, shard: Shard, row: int, key: int) -> np.ndarray:
    """Returns a row's slot of such a table; an empty one if it has none."""
    if _SLOT_KEYS + slot in shard.arrays:
        found = link.find(key, _SLOT_KEYS + slot)
        if found is None:
            return np.zeros([0], np.float32)
        shard, row = found
    return shard.arrays[_SLOT + slot].read(row, row + 1)[0]


def _of_shard(
    shard: Shard, columns: Sequence[str], later: Sequence[np.ndarray], fills: Mapping[str, float]
) -> Iterator[RowBlock]:
    readers = {name: _reader_of(shard, name, fills.get(name, 0.0)) for name in columns}
    step = max(1, _TARGET_BYTES // (8 + sum(shard.arrays[name].row_bytes for name in columns)))
    for begin in range(0, shard.rows, step):
        end = min(begin + step, shard.rows)
        keys = shard.arrays["keys"].read(begin, end)
        keep = np.ones([len(keys)], bool)
        for covered in later:
            keep &= ~_contains(covered, keys)
        if not keep.any():
            continue
        rows = {name: read(begin, end) for name, read in readers.items()}
        if keep.all():
            yield RowBlock(keys, rows)
        else:
            yield RowBlock(keys[keep], {name: array[keep] for name, array in rows.items()})


def _reader_of(shard: Shard, column: str, fill: float) -> Callable[[int, int], np.ndarray]:
    """Returns what reads the rows [begin, end) of a column, in the order of the shard's keys."""
    values = shard.arrays[column]
    own, others = shard.arrays["keys"], shard.arrays.get(f"{_KEYS_OF_SLOT}{removeprefix(column, _OUR_SLOT)}")
    if others is None or _are_equal(own, others):
        return values.read
    ordered = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the reader
    for begin, end, places, found in in_order(None, len(own), _at_keys(own, others, values)):
        rows = np.full((end - begin, *values.shape[1:]), fill, values.dtype)
        rows[places] = found.get("rows", rows[:0])
        ordered.write(rows.tobytes())

    def read(begin: int, end: int) -> np.ndarray:
        ordered.seek(begin * values.row_bytes)
        data = ordered.read((end - begin) * values.row_bytes)
        return np.frombuffer(data, values.dtype).reshape(end - begin, *values.shape[1:])

    return read


def _are_equal(keys: Array, others: Array) -> bool:
    blocks = zip(keys.blocks(_KEYS_AT_ONCE), others.blocks(_KEYS_AT_ONCE))
    return len(keys) == len(others) and all(np.array_equal(*pair) for pair in blocks)


def _at_keys(keys: Array, others: Array, values: Array) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields the rows of a slot, without those of other keys, and their places among the keys."""
    ordered = keys.read(0, len(keys))
    order = np.argsort(ordered)
    ordered = ordered[order]
    seen = np.zeros([len(ordered)], bool)
    for begin in range(0, len(others), _KEYS_AT_ONCE):
        end = min(begin + _KEYS_AT_ONCE, len(others))
        block = others.read(begin, end)
        places = np.minimum(np.searchsorted(ordered, block), max(len(ordered) - 1, 0))
        known = ordered[places] == block if len(ordered) else np.zeros([len(block)], bool)
        places = order[places[known]]
        if seen[places].any() or len(np.unique(places)) < len(places):
            raise CheckpointError(others.path, "has a key twice")
        seen[places] = True
        if len(places):
            yield places, {"rows": values.read(begin, end)[known]}


def _shards(link: Link, shard: int | None) -> Sequence[Shard]:
    """Returns one shard, or all. A key is in the same shard in all folders of a chain."""
    return link.shards if shard is None else [link.shards[shard]]


def _covered(link: Link, shard: int | None) -> np.ndarray:
    """Returns the sorted keys that a delta sets or deletes."""
    return np.sort(np.concatenate([_whole(link, "keys", shard), _whole(link, "deleted", shard)]))


def _whole(link: Link, name: str, shard: int | None) -> np.ndarray:
    return np.concatenate([one.array(name) for one in _shards(link, shard)])


def _contains(ordered: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns a bool for each of `keys`: whether it is in the sorted array `ordered`."""
    if not len(ordered):
        return np.zeros([len(keys)], bool)
    found = np.searchsorted(ordered, keys)
    return ordered[np.minimum(found, len(ordered) - 1)] == keys
