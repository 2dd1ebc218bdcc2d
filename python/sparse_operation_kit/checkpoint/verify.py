"""Checks a checkpoint's tables completely: every byte, and the consistency of their arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import BLOOM_BLOCK_BYTES, Link, Shard, Table, mixed
from sparse_operation_kit.checkpoint.locate import Checkpoint, TableEntry
from sparse_operation_kit.checkpoint.rows import count_rows

_BLOCK_ROWS = 1 << 17
# Bytes of an array that are read at a time.
_READ_BYTES = 8 << 20
# Number of keys that are sorted at a time in the search for duplicates.
_SORTED_KEYS = 1 << 21
_KEY_RANGES = {
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
}


def problems(checkpoint: Checkpoint) -> Iterator[str]:
    """Yields a line for each problem of a checkpoint.

    Checks the entries, and the size and all checksums of all arrays of each table and its chain. Also
    checks that keys are unique, in the shard of their owner and in the table's range, and that numbers of
    rows agree. Memory: at most about 100 MiB, and 8 bytes for each key of the deltas of a shard.
    """
    for entry in checkpoint.tables:
        yield from table_problems(entry)


def table_problems(entry: TableEntry) -> Iterator[str]:
    """Yields a line for each problem of one table."""
    try:
        table = entry.open()
    except CheckpointError as error:
        yield str(error)
        return
    damage = [problem for link in table.links for problem in _link_problems(link)]
    yield from damage
    if not damage:
        yield from _sum_problems(table)


def _sum_problems(table: Table) -> Iterator[str]:
    """Yields a line for each shard whose number of rows, after applying the chain, is not the one named."""
    shards = table.last.shards
    for shard in shards if len(table.links) > 1 else ():
        found = count_rows(table, shard.number)
        if found != shard.table_rows:
            yield (
                f"{table.last.path}: shard {shard.number} has {found} rows with its chain applied, not the "
                f"{shard.table_rows} that its entry names"
            )


def _link_problems(link: Link) -> Iterator[str]:
    any_damaged = False
    for shard in link.shards:
        damaged = list(_damaged_arrays(shard))
        any_damaged |= bool(damaged)
        yield from damaged
        if not damaged and not link.system:
            yield from _key_problems(link, shard)
            yield from _column_problems(link, shard)
            yield from _bloom_problems(link, shard)
    if link.system and not any_damaged:
        yield from _foreign_problems(link)


def _damaged_arrays(shard: Shard) -> Iterator[str]:
    for array in shard.arrays.values():
        try:
            for _ in array.blocks(max(1, _READ_BYTES // max(array.row_bytes, 1))):
                pass
        except CheckpointError as error:
            yield str(error)


def require_distinct_keys(table: Table) -> None:
    """Raises CheckpointError if a key occurs twice in the parts of another system's table."""
    for link in table.links if table.last.system else ():
        twice = _twice_in_parts(link)
        if twice is not None:
            raise CheckpointError(link.path, f"key {twice} occurs twice")


def _foreign_problems(link: Link) -> Iterator[str]:
    """Yields the problem that a key occurs twice in the parts of another system's table."""
    twice = _twice_in_parts(link)
    if twice is not None:
        yield f"{link.path}: key {twice} occurs twice"


def _twice_in_parts(link: Link) -> int | None:
    arrays = [
        shard.arrays[name]
        for shard in link.shards
        for name in ("keys", "waiting_keys")
        if name in shard.arrays
    ]
    return _duplicate(arrays)


def _key_problems(link: Link, shard: Shard) -> Iterator[str]:
    table = link.table
    low, high = _KEY_RANGES[table["key_dtype"]]
    if not table["hashed"]:
        low, high = 0, link.static_keys - 1
    for name in ("keys", "deleted", "waiting_keys", "waiting_deleted"):
        array = shard.arrays.get(name)
        if array is None:
            continue
        for keys in array.blocks(_BLOCK_ROWS):
            foreign = keys[link.owner(keys) != shard.number]
            if foreign.size:
                yield (
                    f"{array.path}: key {foreign[0]} belongs to shard {link.shard_of(int(foreign[0]))} of "
                    f"{len(link.shards)}, not to this one"
                )
                break
            outside = keys[(keys < low) | (keys > high)]
            if outside.size:
                yield f"{array.path}: key {outside[0]} is not in [{low}, {high}], as the table's are"
                break
        twice = _duplicate([array])
        if twice is not None:
            yield f"{array.path}: key {twice} occurs twice"
    yield from _overlaps(shard)
    capacity = table["capacity"]
    if capacity and table["hashed"] and shard.rows > capacity:
        yield f"{link.path}: shard {shard.number} has {shard.rows} rows, above the capacity of {capacity}"


def _overlaps(shard: Shard) -> Iterator[str]:
    if "waiting_keys" not in shard.arrays:
        return
    both = [shard.arrays["keys"], shard.arrays["waiting_keys"]]
    if all(_duplicate([array]) is None for array in both):
        twice = _duplicate(both)
        if twice is not None:
            yield f"{both[1].path}: key {twice} waits for admission, but has a row"


def _duplicate(arrays: list) -> int | None:
    """Returns a key that occurs more than once in the arrays, or None. Sorts a part of the keys at a time."""
    total = sum(len(array) for array in arrays)
    passes = max(1, -(-total // _SORTED_KEYS))
    for number in range(passes):
        chosen = [
            keys if passes == 1 else keys[mixed(keys) % np.uint64(passes) == number]
            for array in arrays
            for keys in array.blocks(_BLOCK_ROWS)
        ]
        ordered = np.concatenate([np.zeros([0], np.int64), *chosen])
        del chosen
        ordered.sort()
        same = np.flatnonzero(ordered[1:] == ordered[:-1])
        if same.size:
            return int(ordered[same[0]])
    return None


def _column_problems(link: Link, shard: Shard) -> Iterator[str]:
    admission = link.table["admission"] or {}
    adam_steps = link.optimizer.steps if link.optimizer else 0
    limits = {
        "frequency": (0, 2**63 - 1),
        "last_step": (0, link.steps),
        "last_used": (0, link.uses),
        "adam_step": (0, adam_steps),
        "waiting_counts": (0, max(admission.get("filter_freq", 1) - 1, 0)),
        "waiting_last_step": (0, link.steps),
    }
    for name, (low, high) in limits.items():
        array = shard.arrays.get(name)
        if array is None:
            continue
        for values in array.blocks(_BLOCK_ROWS):
            outside = values[(values < low) | (values > high)]
            if outside.size:
                yield f"{array.path}: has {outside[0]}, which is not in [{low}, {high}]"
                break


def _bloom_problems(link: Link, shard: Shard) -> Iterator[str]:
    array = shard.arrays.get("bloom_blocks")
    if array is None:
        return
    admission = link.table["admission"]
    limit = -(-admission["counters"] * (admission["counter_bits"] // 8) // BLOOM_BLOCK_BYTES)
    before = np.array([-1], np.int64)
    for numbers in array.blocks(_BLOCK_ROWS):
        outside = numbers[(numbers < 0) | (numbers >= limit)]
        if outside.size:
            yield f"{array.path}: has the block {outside[0]} of a filter of {limit} blocks"
            return
        both = np.concatenate([before, numbers])
        falls = np.flatnonzero(both[1:] <= both[:-1])
        if falls.size:
            block, previous = both[falls[0] + 1], both[falls[0]]
            yield f"{array.path}: has the block {block} after the block {previous}: blocks must increase"
            return
        before = both[-1:]


def checked_bytes(entry: TableEntry) -> int:
    """Returns the bytes of all arrays of a table and its chain."""
    return sum(link.bytes for link in entry.open().links)
