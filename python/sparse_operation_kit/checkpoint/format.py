"""Tables of checkpoints: their entries and arrays, and the chain that a delta builds on.

The C++ library has checked that entries are consistent and fit together.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.reader import SavedCheckpoint, SavedTable

# Arrays with one number for each row, besides the keys; arrays of an admission filter.
COLUMNS = ("frequency", "last_step", "last_used", "adam_step")
WAITING = ("waiting_keys", "waiting_counts", "waiting_last_step")
BLOOM = ("bloom_counters", "bloom_blocks")
INITIAL_ROWS = "initial_rows"
# Counters of a Bloom filter that are saved together.
BLOOM_BLOCK_BYTES = 64


def mixed(keys: np.ndarray) -> np.ndarray:
    """Returns a hash below 2^32 of each int64 key; it spreads the keys of one shard evenly too."""
    return keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)


class Array:
    """An array of a shard. Reading verifies the checksums of what it reads. Not thread-safe.

    Attributes:
      path: The data file, and the tensor in it, for messages.
      dtype: The dtype of the elements.
      shape: The shape; the first dimension is the number of rows.
      crc32c: CRC-32C of each MiB; none if the file has numbers of another dtype.
      stored_bytes: The bytes of all rows in the file.
    """

    def __init__(
        self, table: SavedTable, place: tuple[int, int, str], tensor: str, entry: dict[str, Any]
    ) -> None:
        """`place` is the link, the shard and the name; `entry` what the shard says of the array."""
        self._table, self._place = table, place
        self.path = f"{entry['file']}:{tensor}"
        self.dtype = np.dtype("<u2" if entry["dtype"] == "bfloat16" else entry["dtype"])
        self.shape = tuple(entry["shape"])
        self.crc32c = tuple(entry["crc32c"])
        self.stored_bytes: int = entry["stored_bytes"]

    def __len__(self) -> int:
        """Returns the number of rows."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return functools.reduce(operator.mul, self.shape[1:], self.dtype.itemsize)

    def read(self, begin: int, end: int) -> np.ndarray:
        """Returns the rows in [begin, end). Raises CheckpointError if they are damaged."""
        rows = np.empty((end - begin, *self.shape[1:]), self.dtype)
        link, shard, name = self._place
        self._table.read(link, shard, name, begin * self.row_bytes, rows)
        return rows

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Yields all rows in order, `rows` at a time."""
        for begin in range(0, len(self), rows):
            yield self.read(begin, min(begin + rows, len(self)))


class Shard:
    """The part of a table that one rank wrote: arrays by name."""

    def __init__(self, table: SavedTable, link: int, number: int, name: str, entry: dict[str, Any]) -> None:
        """`entry` is what the checkpoint says of the shard; `name` the table's name."""
        self.number = number
        self.rows: int = entry["rows"]
        self.table_rows: int = entry["table_rows"]
        self.arrays = {
            array: Array(table, (link, number, array), f"{name}#{number}/{array}", facts)
            for array, facts in entry["arrays"].items()
        }

    def keys(self, rows: int) -> Iterator[np.ndarray]:
        """Yields the int64 keys in file order, `rows` at a time."""
        return self.arrays["keys"].blocks(rows)

    def array(self, name: str) -> np.ndarray:
        """Returns a whole array; an empty one if the shard has no array of that name."""
        array = self.arrays.get(name)
        return np.zeros([0], np.int64) if array is None else array.read(0, len(array))


@dataclass(frozen=True)
class Slot:
    """A slot of an optimizer: name, floats of a row, their value in a new row, and their type in files."""

    name: str
    width: int
    fill: float
    dtype: str

    def __str__(self) -> str:
        """Returns "m [64]", or if the type is not float32 "m [64] bfloat16"."""
        return f"{self.name} [{self.width}]" + ("" if self.dtype == "float32" else f" {self.dtype}")


@dataclass(frozen=True)
class Optimizer:
    """The state of a table's optimizer; `history` as in docs/checkpoint-format.md."""

    name: str
    steps: int
    hyper: dict[str, float]
    slots: tuple[Slot, ...]
    history: dict[str, Any] | None


class Link:
    """One table in one checkpoint: a full checkpoint of the table, or a delta.

    Attributes:
      prefix: The checkpoint's prefix.
      id: The save's id.
      is_delta: Whether it builds on other checkpoints.
      table: The table's definition.
      steps: The steps of the table's clock.
      uses: Its training lookups.
      rows: The rows of the table, over all shards; in a delta, those after its chain is applied.
      optimizer: The optimizer's state, None before the first step.
      slots_of: The other system's optimizer whose slots it has, "" unless slots were taken.
      left_out: The tensors of such a table that nothing here is read from.
      static_keys: The number of keys of a table without hashing.
      row_dtype: The type of rows in the files: "float32", "bfloat16" or "float16". They are read as float32.
      system: The other system that wrote the table, or None. Of such a table, the definition has only the
        name and the dim, the numbers of steps and uses mean nothing without a clock, and any shard may have
        any key.
      shards: The shards.
    """

    def __init__(self, table: SavedTable, number: int, facts: dict[str, Any]) -> None:
        """`facts` is link `number` of `table`."""
        entry = facts["table"]
        self.prefix: str = facts["prefix"]
        self.id: str = facts["id"]
        self.is_delta: bool = entry["kind"] == "delta"
        self.table: dict[str, Any] = entry["table"]
        self.steps: int = entry["steps"]
        self.uses: int = entry["uses"]
        self.optimizer = _optimizer(entry["optimizer"])
        self.static_keys: int = facts["static_keys"]
        self.row_dtype: str = self.table.get("row_dtype", "float32")
        self.system: str | None = facts["system"]
        self.slots_of: str = facts["slots_of"]
        self.left_out: list[str] = facts["left_out"]
        name = self.table["name"]
        self.shards = [Shard(table, number, shard, name, one) for shard, one in enumerate(facts["shards"])]
        self.rows = sum(shard.table_rows for shard in self.shards)
        # Returns the number of the shard of each of the int64 keys; for replicas the first shard.
        self.owner = table.owners

    @property
    def path(self) -> str:
        """The checkpoint and the table, for messages."""
        return f"{self.prefix}:{self.table['name']}"

    @property
    def bytes(self) -> int:
        """The bytes of all arrays in the files."""
        return sum(array.stored_bytes for shard in self.shards for array in shard.arrays.values())

    def shard_of(self, key: int) -> int:
        """Returns the number of the shard that `key` belongs to."""
        return int(self.owner(np.array([key], np.int64))[0])

    def find(self, key: int, name: str = "keys") -> tuple[Shard, int] | None:
        """Returns the shard and position of `key` in the array `name`; None if the key is not in it."""
        for shard in self.shards if self.system else [self.shards[self.shard_of(key)]]:
            begin = 0
            for block in shard.arrays[name].blocks(1 << 17) if name in shard.arrays else ():
                found = np.flatnonzero(block == key)
                if found.size:
                    return shard, begin + int(found[0])
                begin += len(block)
        return None


class Table:
    """A table of a checkpoint, and those of the chain that it builds on.

    Attributes:
      name: The table's name.
      links: The chain in the order in which they are applied: a full one, then deltas.
      saved: What `open_table` returned.
    """

    def __init__(self, table: SavedTable) -> None:
        """Use `Table.open`."""
        self.saved = table
        self.links = [Link(table, number, facts) for number, facts in enumerate(table.links)]
        self.name: str = self.last.table["name"]

    @classmethod
    def open(cls, checkpoint: SavedCheckpoint, name: str, trained_by: str | None = None) -> Table:
        """Opens a table of a checkpoint and those that it builds on; see `SavedCheckpoint.open_table`.

        Raises:
          CheckpointError: One of them cannot be used, or they do not belong together.
        """
        return cls(checkpoint.open_table(name, trained_by))

    @property
    def first(self) -> Link:
        """The full checkpoint, the first of the chain."""
        return self.links[0]

    @property
    def last(self) -> Link:
        """The table itself, the last of the chain."""
        return self.links[-1]

    @property
    def dim(self) -> int:
        """The floats of a row."""
        return self.last.table["dim"]

    def initial_rows(self, keys: np.ndarray) -> np.ndarray:
        """Returns the rows with which the int64 `keys` [n] begin, float32 [n, dim]."""
        initializer = self.last.table["initializer"]
        if initializer["kind"] != "given":
            return self.saved.initial_rows(keys, self.dim)
        given = self.first.shards[0].array(INITIAL_ROWS)
        return given[keys % len(given)]

    @property
    def is_lagging(self) -> bool:
        """Whether rows still lack steps of exact Adam, which loading would apply."""
        optimizer = self.last.optimizer
        return optimizer is not None and optimizer.history is not None

    def require_current(self) -> None:
        """Raises CheckpointError if rows in the files still lack steps of exact Adam."""
        if self.is_lagging:
            raise CheckpointError(
                self.last.path,
                "is a delta of exact Adam, whose rows still lack steps. Make a full checkpoint of it first: "
                "python -m sparse_operation_kit.checkpoint compact",
            )


def _optimizer(entry: dict[str, Any] | None) -> Optimizer | None:
    if entry is None:
        return None
    # Numbers that are not finite are strings.
    hyper = {name: float(value) for name, value in entry["hyper"].items()}
    slots = tuple(
        Slot(one["name"], one["width"], float(one["fill"]), one.get("dtype", "float32"))
        for one in entry["slots"]
    )
    return Optimizer(entry["name"], entry["steps"], hyper, slots, entry["history"])
