"""Tables of checkpoints: their manifest and arrays, and the chain that a delta builds on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparse_operation_kit.checkpoint import manifest as manifests
from sparse_operation_kit.checkpoint import table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.manifest import Manifest, ShardSpec
from sparse_operation_kit.checkpoint.npy import CheckedArray
from sparse_operation_kit.checkpoint.placement import BY_KEY


def mixed(keys: np.ndarray) -> np.ndarray:
    """Returns a hash below 2^32 of each int64 key; it spreads the keys of one shard evenly too."""
    return keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)


class Shard:
    """The part of a table that one rank wrote: arrays by name. Reading them checks their checksums."""

    def __init__(self, place: Path, number: int, spec: ShardSpec) -> None:
        """`place` is the table's: see table_files.py."""
        self.number = number
        self.rows = spec.rows
        self.table_rows = spec.table_rows
        self.arrays = {name: CheckedArray(place, array) for name, array in spec.arrays.items()}

    def keys(self, rows: int) -> Iterator[np.ndarray]:
        """Yields the int64 keys in file order, `rows` at a time."""
        return self.arrays["keys"].blocks(rows)

    def array(self, name: str) -> np.ndarray:
        """Returns a whole array; an empty one if the shard has no array of that name."""
        array = self.arrays.get(name)
        return np.zeros([0], np.int64) if array is None else array.read(0, len(array))

    def forget(self) -> None:
        """Frees the memory that reading has cached."""
        for array in self.arrays.values():
            array.forget()


class TableFolder:
    """One table in one checkpoint: a full checkpoint of the table, or a delta. `path` is its place."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Use `TableFolder.open`."""
        self.path = path
        self.manifest = manifest
        self.shards = [Shard(path, number, spec) for number, spec in enumerate(manifest.shards)]
        self.placement = manifest.placement

    @classmethod
    def open(cls, path: Path, file_crc32: int | None = None) -> TableFolder:
        """Reads the manifest at the place `path`; arrays are opened only when they are read.

        Args:
          path: The table's place.
          file_crc32: The CRC-32 that the manifest file must have; None if it is unknown.

        Raises:
          CheckpointError: The table is missing, unfinished or damaged, or has another CRC-32.
        """
        if path.name.endswith(table_files.UNFINISHED):
            raise CheckpointError(path, "was being written when its save ended, and is not complete")
        if table_files.is_folder(path) and not path.is_dir():
            raise CheckpointError(path, "there is no such folder")
        manifest = manifests.read(path)
        if file_crc32 is not None and manifest.file_crc32 != file_crc32:
            raise CheckpointError(
                table_files.file_of(path, manifests.FILE),
                f"is not the one that was saved: its checksum is {manifest.file_crc32}, not {file_crc32}",
            )
        return cls(path, manifest)

    @property
    def bytes(self) -> int:
        """The bytes of the files of all arrays."""
        return sum(array.spec.bytes for shard in self.shards for array in shard.arrays.values())

    def shard_of(self, key: int) -> int:
        """Returns the number of the shard that `key` belongs to."""
        return int(self.placement.owner(np.array([key], np.int64))[0])

    def find(self, key: int, name: str = "keys") -> tuple[Shard, int] | None:
        """Returns the shard and position of `key` in the array `name`; None if the key is not in it."""
        shard = self.shards[self.shard_of(key)]
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
    """

    def __init__(self, links: Sequence[TableFolder]) -> None:
        """Use `Table.open`."""
        self.links = list(links)
        self.name = self.last.manifest.name

    @classmethod
    def open(cls, path: Path, file_crc32: int | None = None) -> Table:
        """Opens the table at the place `path` and those that it builds on.

        Raises:
          CheckpointError: One of them cannot be used, or they do not belong together.
        """
        last = TableFolder.open(path, file_crc32)
        links = [TableFolder.open(_resolve(path, link.path), link.crc32) for link in last.manifest.chain]
        table = cls([*links, last])
        table._check_chain()
        return table

    @property
    def first(self) -> TableFolder:
        """The full checkpoint, the first of the chain."""
        return self.links[0]

    @property
    def last(self) -> TableFolder:
        """The table itself, the last of the chain."""
        return self.links[-1]

    @property
    def manifest(self) -> Manifest:
        """The table's own manifest."""
        return self.last.manifest

    @property
    def is_lagging(self) -> bool:
        """Whether rows still lack steps of exact Adam, which loading would apply."""
        optimizer = self.manifest.optimizer
        return optimizer is not None and optimizer.history is not None

    def require_current(self) -> None:
        """Raises CheckpointError if rows in the files still lack steps of exact Adam."""
        if self.is_lagging:
            raise CheckpointError(
                self.last.path,
                "is a delta of exact Adam, whose rows still lack steps. Make a full checkpoint of it first: "
                "python -m sparse_operation_kit.checkpoint compact",
            )

    def forget(self) -> None:
        """Frees the memory that reading has cached."""
        for link in self.links:
            for shard in link.shards:
                shard.forget()

    def _check_chain(self) -> None:
        for number, link in enumerate(self.links):
            found, wanted = link.manifest, self.manifest
            if found.is_delta != (number > 0):
                raise CheckpointError(link.path, f"is a {found.kind} checkpoint as part {number} of a chain")
            facts = _shared_facts(wanted)
            for name, value in _shared_facts(found).items():
                if value != facts[name]:
                    raise CheckpointError(
                        self.last.path,
                        f"has {name} {facts[name]!r}, but {link.path} of its chain has {value!r}",
                    )
            if found.steps > wanted.steps:
                raise CheckpointError(link.path, f"is of step {found.steps}, after those that build on it")
            before = [part.manifest.file_crc32 for part in self.links[:number]]
            if [part.crc32 for part in found.chain] != before:
                raise CheckpointError(
                    link.path, f"builds on other checkpoints than {self.last.path}, whose chain it is in"
                )
            history = found.optimizer.history if found.optimizer else None
            first = self.links[0].manifest.optimizer
            if history is not None and (first is None or history["first_step"] != first.steps):
                raise CheckpointError(
                    link.path,
                    f"has an optimizer's history that does not begin where {self.links[0].path} ends",
                )


def _shared_facts(manifest: Manifest) -> dict[str, Any]:
    """Returns the facts that must be equal in all checkpoints of a chain."""
    optimizer = manifest.optimizer
    return {
        **{name: manifest.table[name] for name in ("name", "dim", "key_dtype", "hashed")},
        "shards": len(manifest.shards),
        "placement": manifest.table.get("placement", BY_KEY),
        "optimizer": optimizer.name if optimizer else "none",
        "slots": [(slot.name, slot.width) for slot in optimizer.slots] if optimizer else [],
        "arrays of a row": sorted(name for name in manifest.shards[0].arrays if name in manifests.COLUMNS),
    }


def _resolve(place: Path, relative: str) -> Path:
    # Not Path.resolve, which would follow a symbolic link to the folder and look beside its target.
    path = table_files.path_of(place).absolute() / relative
    return table_files.place_at(Path(os.path.normpath(path)))
