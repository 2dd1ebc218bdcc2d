"""Rewrites tables of string features to the keys that `categorical_column_with_embedding` uses now.

Its first versions used the 64 bits of a string's Fingerprint64 as the key. The key is now that number modulo
2^63 - 1, as in DeepRec. The old key determines the new one, so a checkpoint can be rewritten without the
strings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sparse_operation_kit.checkpoint import manifest as manifests
from sparse_operation_kit.checkpoint.compaction import new_checkpoint
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.locate import Checkpoint
from sparse_operation_kit.checkpoint.rows import RowBlock, columns_of, row_blocks, waiting_ids
from sparse_operation_kit.checkpoint.writer import RowSource, WholeArray

_MODULUS = np.uint64(2**63 - 1)
# The columns that decide which of several rows is kept, the most important first.
_PREFERENCE = ("frequency", "last_step", "last_used")


@dataclasses.dataclass(frozen=True)
class Rehashed:
    """What `rehash` did to a table.

    Attributes:
      name: The table's name.
      rows: The number of rows before.
      changed: How many of these rows got another key.
      dropped: How many were dropped, because another row has the same new key.
    """

    name: str
    rows: int
    changed: int
    dropped: int


def rehash(checkpoint: Checkpoint, prefix: Path, names: Sequence[str]) -> list[Rehashed]:
    """Writes a full checkpoint in which some tables have the new keys of strings.

    Other tables, and ordinary variables, are copied. Keys that are new already do not change. If several old
    keys have the same new key, one row is kept: the one that occurred most often, then the one with the
    latest update or lookup, as far as the table stores these, then the one with the smallest old key as an
    unsigned number. Occurrences are added up. The counters of a `CBFFilter` start at zero, because counters
    cannot be assigned to keys.

    Memory: 60 to 120 bytes for each key of one table, more the more counts it has, and 16 or 24 for each key
    of the other tables in `names`.

    Args:
      checkpoint: The old checkpoint.
      prefix: The prefix of the new one.
      names: The tables whose keys come from strings.

    Raises:
      CheckpointError: There is no such table, or its keys cannot be those of strings; `prefix` exists
        already; a table is damaged.
    """
    if not names:
        raise CheckpointError(checkpoint.path, "name the tables whose keys come from strings")
    sources = {entry.name: _RehashedRows(entry.open()) for entry in checkpoint.select(list(names))}
    new_checkpoint(checkpoint, prefix, sources)
    return [source.summary() for source in sources.values()]


def new_keys(keys: np.ndarray) -> np.ndarray:
    """Returns the new keys for old keys of strings, both int64."""
    return (keys.view(np.uint64) % _MODULUS).astype(np.int64)


class _RehashedRows(RowSource):
    """The rows of a table under their new keys."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        description = table.manifest.table
        if description["key_dtype"] != "int64" or not description["hashed"]:
            raise CheckpointError(
                table.last.path,
                f"has {description['key_dtype']} keys, "
                f"{'hashed' if description['hashed'] else 'not hashed'}: they are not those of strings",
            )
        table.require_current()
        self._rank_rows()
        self._merge_waiting()

    def _rank_rows(self) -> None:
        """Decides which rows stay, and how often their keys occurred."""
        known = [name for name in _PREFERENCE if name in columns_of(self.table)]
        blocks = list(row_blocks(self.table, known))
        old = np.concatenate([block.keys for block in blocks] or [np.zeros([0], np.int64)])
        ranks = {
            name: np.concatenate([block.columns[name] for block in blocks] or [np.zeros([0], np.int64)])
            for name in known
        }
        new = new_keys(old)
        # Sorted by new key; of rows with equal new keys, the one to keep comes first. np.lexsort sorts by its
        # last argument first.
        order = np.lexsort((old.view(np.uint64), *(-ranks[name] for name in reversed(known)), new))
        new = new[order]
        stays = np.ones([len(new)], bool)
        stays[1:] = new[1:] != new[:-1]
        starts = np.flatnonzero(stays)
        self._rows, self._changed = len(old), int((new_keys(old) != old).sum())
        self._kept = np.sort(old[order[stays]])
        self._keys = new[stays]  # sorted
        # By new key; empty if the table has no counts.
        self._frequency = np.zeros([0], np.int64)
        if "frequency" in ranks and len(starts):
            self._frequency = np.add.reduceat(ranks["frequency"][order], starts)

    def _merge_waiting(self) -> None:
        """Adds up the counts of waiting ids; if an id now has a row, its count is added to the row's."""
        keys, counts, steps = waiting_ids(self.table)
        keys, inverse = np.unique(new_keys(keys), return_inverse=True)
        total = np.zeros([len(keys)], np.int64)
        last = np.zeros([len(keys)], np.int64)
        np.add.at(total, inverse, counts)
        np.maximum.at(last, inverse, steps)
        at = np.asarray(np.searchsorted(self._keys, keys))
        has_row = np.zeros([len(keys)], bool)
        inside = at < len(self._keys)
        has_row[inside] = self._keys[at[inside]] == keys[inside]
        if len(self._frequency):
            self._frequency[at[has_row]] += total[has_row]
        self._waiting = (keys[~has_row], total[~has_row], last[~has_row])

    def count(self, shard: int) -> int:
        return int((self.table.last.placement.owner(self._keys) == shard).sum())

    def blocks(self, columns: Sequence[str], shard: int) -> Iterator[RowBlock]:
        for block in row_blocks(self.table, columns):
            keys = new_keys(block.keys)
            mine = self.table.last.placement.owner(keys) == shard
            mine &= np.isin(block.keys, self._kept)
            rows = {name: array[mine] for name, array in block.columns.items()}
            if "frequency" in rows:
                rows["frequency"] = self._frequency[np.searchsorted(self._keys, keys[mine])]
            yield RowBlock(keys[mine], rows)

    def waiting(self, shard: int) -> tuple[np.ndarray, ...]:
        mine = self.table.last.placement.owner(self._waiting[0]) == shard
        return tuple(array[mine] for array in self._waiting)

    def bloom(self, shard: int) -> Iterator[WholeArray]:
        for array in super().bloom(shard):
            if manifests.in_blocks(self.table.manifest.table):
                yield dataclasses.replace(array, shape=(0, *array.shape[1:]), pieces=())
            else:
                yield dataclasses.replace(array, pieces=map(np.zeros_like, array.pieces))

    def summary(self) -> Rehashed:
        """Returns what happens to the table."""
        return Rehashed(self.table.name, self._rows, self._changed, self._rows - len(self._keys))
