"""Finds the tables of a checkpoint at a path that a user gives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sparse_operation_kit.checkpoint import own_files, reader
from sparse_operation_kit.checkpoint.errors import CheckpointError, check_path, refuse_other_than_file
from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.newer_python import removesuffix


@dataclass(frozen=True)
class TableEntry:
    """A table of a checkpoint that is open."""

    name: str
    checkpoint: reader.SavedCheckpoint

    def open(self, trained_by: str | None = None) -> Table:
        """Opens the table with its chain. Raises CheckpointError if one of them cannot be used.

        `trained_by` is as in `SavedCheckpoint.open_table`.
        """
        return Table.open(self.checkpoint, self.name, trained_by)


@dataclass(frozen=True)
class Checkpoint:
    """The tables of the checkpoint with a prefix, sorted by name.

    Attributes:
      prefix: The prefix.
      tables: The tables, of this library and other systems.
      variables: Variables that can be read as tables.
    """

    prefix: Path
    tables: tuple[TableEntry, ...]
    variables: tuple[TableEntry, ...] = ()

    def select(self, names: list[str] | None) -> tuple[TableEntry, ...]:
        """Returns the named tables, or all for None. Raises CheckpointError if a table does not exist."""
        if not names and not self.tables:
            read = "', '".join(entry.name for entry in self.variables)
            raise CheckpointError(
                self.prefix,
                "is a checkpoint of TensorFlow without any embedding table"
                + (f"; these variables can be read as tables, by name: '{read}'" if read else ""),
            )
        if not names:
            return self.tables
        known = {entry.name: entry for entry in (*self.tables, *self.variables)}
        for name in names:
            if name not in known:
                raise CheckpointError(
                    self.prefix, f"has no table '{name}'; it has {', '.join(map(repr, known)) or 'none'}"
                )
        return tuple(known[name] for name in dict.fromkeys(names))


def open_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """Finds the tables of a checkpoint.

    Args:
      path: A prefix of `tf.compat.v1.train.Saver`, its `.index` file, or a directory with checkpoints, of
        which the latest is used; or a directory of SOK 2.x.

    Raises:
      CheckpointError: There is no checkpoint at `path`, or it cannot be read.
    """
    given = check_path(path)
    try:
        return _open(given)
    except OSError as error:
        raise CheckpointError(given, f"cannot be read: {error}") from None


def _open(given: Path) -> Checkpoint:
    if own_files.is_folder(given):
        sok2 = own_files.sok2_description(given)
        prefix = _latest(given) if sok2 is None else Path(sok2)
    else:
        prefix = given.with_name(removesuffix(given.name, ".index"))
    saved = reader.open_saved(prefix)
    if saved is None:
        raise CheckpointError(
            given,
            "is a file; name a checkpoint's prefix, or a directory with checkpoints"
            if own_files.facts(given) is not None
            else "there is neither a checkpoint with this prefix nor such a folder",
        )
    tables, variables = (
        tuple(TableEntry(name, saved) for name in names)
        for names in (sorted([*saved.tables, *saved.foreign]), saved.variables)
    )
    checkpoint = Checkpoint(prefix, tables, variables)
    if not variables:
        checkpoint.select(None)
    return checkpoint


def _latest(directory: Path) -> Path:
    import tensorflow as tf

    refuse_other_than_file(directory / "checkpoint")
    found = tf.train.latest_checkpoint(str(directory))
    if found is None:
        raise CheckpointError(
            directory, "holds no checkpoint: its file 'checkpoint' cannot be read, or names none that exists"
        )
    return Path(found)
