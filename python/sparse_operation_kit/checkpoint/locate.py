"""Finds the tables of a checkpoint at a path that a user gives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sparse_operation_kit.checkpoint import manifest as manifests
from sparse_operation_kit.checkpoint import own_files, table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.paths import check_path, refuse_other_than_file
from sparse_operation_kit.checkpoint.references import Reference, read_references
from sparse_operation_kit.checkpoint.table_files import FOLDER_SUFFIX
from sparse_operation_kit.newer_python import removesuffix


@dataclass(frozen=True)
class TableEntry:
    """A table's name, its place, and the CRC-32 of its manifest file, if a reference to the table has it."""

    name: str
    place: Path
    file_crc32: int | None = None

    def open(self) -> Table:
        """Opens the table with its chain. Raises CheckpointError if one of them cannot be used."""
        table = Table.open(self.place, self.file_crc32)
        if self.file_crc32 is not None and table.name != self.name:
            raise CheckpointError(self.place, f"holds the table '{table.name}', not '{self.name}'")
        return table


@dataclass(frozen=True)
class Checkpoint:
    """The tables at a path, sorted by name. `prefix` is that of TensorFlow's files, None without them."""

    path: Path
    prefix: Path | None
    tables: tuple[TableEntry, ...]

    def select(self, names: list[str] | None) -> tuple[TableEntry, ...]:
        """Returns the named tables, or all for None. Raises CheckpointError if a table does not exist."""
        if not names:
            return self.tables
        known = {entry.name: entry for entry in self.tables}
        for name in names:
            if name not in known:
                raise CheckpointError(
                    self.path, f"has no table '{name}'; it has {', '.join(map(repr, known)) or 'none'}"
                )
        return tuple(known[name] for name in dict.fromkeys(names))


def open_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """Finds the tables at `path`; reads their manifests at most.

    Args:
      path: A prefix of `tf.compat.v1.train.Saver`, a directory with checkpoints (the latest is used), a
        prefix with `.sok`, a table's folder, or a table's file.

    Raises:
      CheckpointError: There is no checkpoint at `path`, or TensorFlow's part of it cannot be read.
    """
    given = check_path(path)
    if given.is_dir():
        if _is_table_folder(given):
            return Checkpoint(given, None, (_entry_at(given),))
        if given.name.endswith(FOLDER_SUFFIX):
            return _of_tables(given)
        return _of_prefix(_latest(given))
    if _has_index(given):
        return _of_prefix(given)
    if given.name.endswith(".index") and given.exists():
        return _of_prefix(given.with_name(removesuffix(given.name, ".index")))
    place = table_files.place_of_file(table_files.place_at(given))
    if place is not None:
        return Checkpoint(given, None, (_entry_at(place),))
    if given.name.endswith(FOLDER_SUFFIX) and table_files.places_of(table_files.prefix_of_folder(given)):
        return _of_tables(given)
    raise CheckpointError(
        given,
        "there is neither a checkpoint with this prefix nor such a folder"
        if not given.exists()
        else "is a file; name a checkpoint's prefix, a directory with checkpoints, or a table's file",
    )


def _is_table_folder(folder: Path) -> bool:
    """Returns whether it is a table's folder, even a damaged one without a manifest."""
    return (
        (folder / manifests.FILE).exists()
        or (folder / "shard-00000").is_dir()
        or folder.name.endswith(table_files.UNFINISHED)
        or folder.absolute().parent.name.endswith(FOLDER_SUFFIX)
    )


def _has_index(prefix: Path) -> bool:
    return prefix.with_name(prefix.name + ".index").exists()


def _latest(directory: Path) -> Path:
    import tensorflow as tf

    refuse_other_than_file(directory / "checkpoint")
    found = tf.train.latest_checkpoint(str(directory))
    if found is None:
        raise CheckpointError(directory, "holds no checkpoint: its file 'checkpoint' names none that exists")
    return Path(found)


def _of_prefix(prefix: Path) -> Checkpoint:
    entries = [
        TableEntry(reference.name, _place_of(prefix, reference), reference.manifest_crc32)
        for reference in read_references(prefix)
    ]
    if not entries:
        raise CheckpointError(prefix, "is a checkpoint of TensorFlow without any embedding table")
    return Checkpoint(prefix, prefix, tuple(entries))


def _place_of(prefix: Path, reference: Reference) -> Path:
    near, stored = (table_files.place_at(path) for path in reference.paths(prefix))
    # Without either, the error is about the file beside the prefix.
    return stored if table_files.is_complete(stored) and not table_files.is_complete(near) else near


def _of_tables(folder: Path) -> Checkpoint:
    """Returns the tables of the prefix, where `folder` is the prefix with ".sok"."""
    prefix = table_files.prefix_of_folder(folder)
    try:
        if folder.is_symlink():
            own_files.names(folder)  # Raises the error.
        places = table_files.places_of(prefix)
    except OSError as error:
        raise CheckpointError(folder, f"cannot be read: {error.strerror or error}") from None
    entries = [_entry_at(place) for place in places if table_files.is_complete(place)]
    if not entries:
        raise CheckpointError(folder, "holds no table")
    names = [entry.name for entry in entries]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        # A save was repeated. TensorFlow's part refers to the valid folder.
        if _has_index(prefix):
            return _of_prefix(prefix)
        raise CheckpointError(folder, f"holds the table '{twice}' more than once; name one of its files")
    return Checkpoint(folder, None, tuple(sorted(entries, key=lambda entry: entry.name)))


def _entry_at(place: Path) -> TableEntry:
    try:
        return TableEntry(manifests.read(place).name, place)
    except CheckpointError:
        # Opening the table will report the problem. Until then the name comes from the files' names.
        return TableEntry(table_files.name_in(place), place)
