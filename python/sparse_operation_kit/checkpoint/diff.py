"""Compares two checkpoints: ids, weights, slots, counts, and manifests."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparse_operation_kit.checkpoint.describe import count_of
from sparse_operation_kit.checkpoint.format import BLOOM, BLOOM_BLOCK_BYTES, Shard, Table, mixed
from sparse_operation_kit.checkpoint.locate import Checkpoint
from sparse_operation_kit.checkpoint.rows import columns_of, count_rows, row_blocks, waiting_ids

# Bytes of the second checkpoint's rows that are in memory at a time. Larger tables need several passes over
# both checkpoints.
_HELD_BYTES = 256 << 20
# The number of blocks of a Bloom filter that are read at a time.
_BLOCK_ROWS = 1 << 15


@dataclass
class TableDifference:
    """The differences of table B from table A. Arrays are compared bit by bit.

    Attributes:
      added: The number of ids that only B has.
      removed: The number of ids that only A has.
      changed: The number of ids that both have with different rows.
      of_column: How many of those differ in each array.
      largest_change: The largest |B - A| of a weight; infinite if only one of the two is NaN.
      largest_at: The id with that change.
      waiting: The number of ids that wait for admission in only one table, or with another count or step.
      bloom: Whether the counters of the Bloom filters differ.
      manifest: Lines about differences of the manifests.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    of_column: dict[str, int] = field(default_factory=dict)
    largest_change: float = 0.0
    largest_at: int | None = None
    waiting: int = 0
    bloom: bool = False
    manifest: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether the tables are the same."""
        return not (self.added or self.removed or self.changed or self.waiting or self.bloom or self.manifest)


def compare(first: Table, second: Table) -> TableDifference:
    """Compares two tables after applying their chains. The order of rows and the number of shards may differ.

    Memory: about 300 MiB, 8 bytes for each key of the deltas, and some hundred bytes for each id that waits
    for admission. Larger tables are read several times.

    Raises:
      CheckpointError: A file is damaged, or rows still lack steps of exact Adam.
    """
    first.require_current()
    second.require_current()
    found = TableDifference(manifest=list(_manifest_lines(first, second)))
    common = [name for name in columns_of(first) if name in columns_of(second)]
    columns = [name for name in common if _width(first, name) == _width(second, name)]
    row_bytes = 16 + sum(second.last.shards[0].arrays[name].row_bytes for name in columns)
    passes = max(1, -(-count_rows(second) * row_bytes // _HELD_BYTES))
    for number in range(passes):
        _compare_part(first, second, columns, (number, passes), found)
    found.waiting = _waiting_differences(first, second)
    found.bloom = _bloom_differs(first, second)
    return found


def lines(first: Checkpoint, second: Checkpoint, names: list[str] | None) -> Iterator[str]:
    """Yields a line for each difference between the tables of two checkpoints."""
    of_first = {entry.name: entry for entry in first.select(names)}
    of_second = {entry.name: entry for entry in second.select(names)}
    for name in sorted(of_first.keys() | of_second.keys()):
        if name not in of_second:
            yield f"{name}: only in {first.prefix}"
        elif name not in of_first:
            yield f"{name}: only in {second.prefix}"
        else:
            found = compare(of_first[name].open(""), of_second[name].open(""))
            yield from (f"{name}: {line}" for line in _lines(found))


def _lines(found: TableDifference) -> Iterator[str]:
    yield from found.manifest
    if found.added or found.removed or found.changed:
        yield f"ids: {found.added:,} added, {found.removed:,} removed, {found.changed:,} changed"
    for column, count in found.of_column.items():
        at_most = ""
        if column == "values":
            at_most = f", a weight by {found.largest_change:.9g} at most (id {found.largest_at})"
        yield f"{column}: of {count_of(count, 'id')} changed{at_most}"
    if found.waiting:
        yield f"{count_of(found.waiting, 'id')} that wait for admission changed"
    if found.bloom:
        yield "the counters of the Bloom filters differ"


def _width(table: Table, name: str) -> tuple[int, ...]:
    return table.last.shards[0].arrays[name].shape[1:]


def _compare_part(
    first: Table, second: Table, columns: list[str], part: tuple[int, int], found: TableDifference
) -> None:
    keys, rows = _load_part(second, columns, part)
    seen = np.zeros([len(keys)], bool)
    for block in row_blocks(first, columns):
        mine = _chosen(block.keys, part)
        position = np.minimum(np.searchsorted(keys, block.keys), max(len(keys) - 1, 0))
        both = mine & (keys[position] == block.keys) if len(keys) else np.zeros_like(mine)
        found.removed += int((mine & ~both).sum())
        seen[position[both]] = True
        differs = np.zeros([int(both.sum())], bool)
        for name in columns:
            old, new = block.columns[name][both], rows[name][position[both]]
            differs |= _note_changes(found, name, block.keys[both], old, new)
        found.changed += int(differs.sum())
    found.added += int((~seen).sum())


def _load_part(
    table: Table, columns: list[str], part: tuple[int, int]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the keys of a part and their rows, sorted by key."""
    keys = [np.zeros([0], np.int64)]
    rows: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    for block in row_blocks(table, columns):
        mine = _chosen(block.keys, part)
        keys.append(block.keys[mine])
        for name in columns:
            rows[name].append(block.columns[name][mine])
    joined = np.concatenate(keys)
    order = np.argsort(joined)
    return joined[order], {
        name: np.concatenate(rows.pop(name))[order] if rows[name] else np.zeros([0]) for name in columns
    }


def _chosen(keys: np.ndarray, part: tuple[int, int]) -> np.ndarray:
    number, parts = part
    return np.ones([len(keys)], bool) if parts == 1 else mixed(keys) % np.uint64(parts) == number


def _note_changes(
    found: TableDifference, name: str, keys: np.ndarray, old: np.ndarray, new: np.ndarray
) -> np.ndarray:
    """Adds a column's changes to `found`; returns a bool for each row: whether it differs."""
    bits = f"u{old.dtype.itemsize}"
    unequal = (old.view(bits) != new.view(bits)).reshape(len(keys), int(np.prod(old.shape[1:])))
    differs = unequal.any(axis=1)
    if not differs.any():
        return differs
    found.of_column[name] = found.of_column.get(name, 0) + int(differs.sum())
    if name == "values":
        with np.errstate(invalid="ignore", over="ignore"):
            change = np.abs(new.astype(np.float64) - old.astype(np.float64))
        change[np.isnan(change)] = np.inf
        change[~unequal] = 0.0
        largest = change.max(axis=1)
        at = int(np.argmax(largest))
        if found.largest_at is None or largest[at] > found.largest_change:
            found.largest_change, found.largest_at = float(largest[at]), int(keys[at])
    return differs


def _waiting_differences(first: Table, second: Table) -> int:
    sides = [
        {ids: (count, step) for ids, count, step in zip(*(a.tolist() for a in waiting_ids(table)))}
        for table in (first, second)
    ]
    return sum(sides[0].get(key) != sides[1].get(key) for key in sides[0].keys() | sides[1].keys())


def _bloom_differs(first: Table, second: Table) -> bool:
    """Returns whether the counters differ, which every checkpoint holds completely, in full or in blocks."""
    same_layout = _in_blocks(first) == _in_blocks(second)
    of_shard = _bloom_checksums if same_layout else _checksum_of_blocks
    sides = [
        [of_shard(shard) for shard in table.last.shards if "bloom_counters" in shard.arrays]
        for table in (first, second)
    ]
    return sides[0] != sides[1]


def _in_blocks(table: Table) -> bool:
    return bool((table.last.table["admission"] or {}).get("in_blocks"))


def _bloom_checksums(shard: Shard) -> list[tuple[int, ...]]:
    return [shard.arrays[name].crc32c for name in BLOOM if name in shard.arrays]


def _checksum_of_blocks(shard: Shard) -> tuple[int, int]:
    """Returns checksums of the numbers and the counters of all blocks that are not zero."""
    of_numbers = of_counters = 0
    for numbers, counters in _blocks_of(shard):
        some = counters.any(axis=1)
        of_numbers = zlib.crc32(numbers[some].tobytes(), of_numbers)
        of_counters = zlib.crc32(counters[some].tobytes(), of_counters)
    return of_numbers, of_counters


def _blocks_of(shard: Shard) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields numbers of blocks, and their counters, a row each."""
    counters = shard.arrays["bloom_counters"]
    if "bloom_blocks" in shard.arrays:
        numbers = shard.arrays["bloom_blocks"]
        yield from zip(numbers.blocks(_BLOCK_ROWS), counters.blocks(_BLOCK_ROWS))
        return
    width = BLOOM_BLOCK_BYTES // counters.dtype.itemsize
    first = 0
    for piece in counters.blocks(_BLOCK_ROWS * width):
        piece = np.pad(piece, (0, -len(piece) % width)).reshape(-1, width)
        yield np.arange(first, first + len(piece), dtype=np.int64), piece
        first += len(piece)


def _manifest_lines(first: Table, second: Table) -> Iterator[str]:
    a, b = _facts(first), _facts(second)
    if first.last.system or second.last.system:
        # Other systems do not tell more.
        told = ["dim", "optimizer.slots"]
        if "clock" in first.last.table and "clock" in second.last.table:
            told.append("steps")
        a, b = ({name: facts.get(name) for name in told} for facts in (a, b))
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            yield f"{name} is {_shown(b, name)}, was {_shown(a, name)}"


def _shown(facts: dict[str, Any], name: str) -> str:
    return str(facts[name]) if name in facts else "missing"


def _facts(table: Table) -> dict[str, Any]:
    """Returns the facts that are equal in all checkpoints of the same state, whatever their layout."""
    link = table.last
    facts: dict[str, Any] = {"steps": link.steps, "uses": link.uses}
    for name, value in link.table.items():
        facts.update(_flat(name, value))
    facts["row_dtype"] = link.row_dtype
    facts.pop("admission.in_blocks", None)
    optimizer = link.optimizer
    facts["optimizer"] = optimizer.name if optimizer else "none"
    if optimizer:
        facts["optimizer.steps"] = optimizer.steps
        facts.update(_flat("optimizer.hyper", optimizer.hyper))
        facts["optimizer.slots"] = ", ".join(map(str, optimizer.slots))
    return facts


def _flat(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    return {f"{name}.{key}": item for key, item in value.items()}
