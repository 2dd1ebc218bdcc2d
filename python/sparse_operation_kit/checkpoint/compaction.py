"""Merges a chain of a full and incremental checkpoints into one full checkpoint."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from sparse_operation_kit.checkpoint import prefix_lock, table_files, tensorflow_part
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import Table
from sparse_operation_kit.checkpoint.locate import Checkpoint
from sparse_operation_kit.checkpoint.paths import check_path
from sparse_operation_kit.checkpoint.writer import RowSource, refuse_existing, write_full


def compact(checkpoint: Checkpoint, prefix: Path) -> None:
    """Applies the chains of a checkpoint's tables and writes a full checkpoint under another prefix.

    The new checkpoint does not depend on others and restores to the same state. TensorFlow's files are
    written last, so that nothing finds the checkpoint before it is complete. Ordinary variables are copied if
    `checkpoint` has them.

    Raises:
      CheckpointError: `prefix` exists already, another process is saving to it, a table or a variable is
        damaged, or TensorFlow cannot write its files. No table that it wrote is left.
    """
    new_checkpoint(checkpoint, prefix, {})


def new_checkpoint(checkpoint: Checkpoint, prefix: Path, sources: Mapping[str, RowSource]) -> None:
    """Like `compact`, with other rows for some of the tables: `sources` by the tables' names."""
    check_path(prefix)
    refuse_existing(prefix.with_name(prefix.name + ".index"))
    refuse_existing(prefix.with_name(prefix.name + table_files.FOLDER_SUFFIX))
    if not prefix.parent.is_dir():
        raise CheckpointError(prefix.parent, "there is no such folder")
    tables = [entry.open() for entry in checkpoint.tables]
    try:
        lock = prefix_lock.acquire(str(prefix), patience=0)
    except (prefix_lock.PrefixInUseError, OSError) as error:
        raise CheckpointError(prefix, f"cannot be written: {error}") from None
    # Without the lock, a training program that saves beside it would remove the tables as leftovers.
    with lock:
        _clear(prefix)
        try:
            references = {
                table.name: _write_table(table, prefix, sources.get(table.name)) for table in tables
            }
            tensorflow_part.write(Path(os.path.abspath(prefix)), references, checkpoint.prefix)
        except BaseException:
            if not os.path.lexists(f"{prefix}.index"):
                with contextlib.suppress(OSError):
                    _remove_tables(prefix)
            raise


def _clear(prefix: Path) -> None:
    """Removes what a killed process has left. Raises CheckpointError if there is a table at the prefix."""
    for place in table_files.places_of(prefix):
        refuse_existing(table_files.file_of(place, table_files.MANIFEST))
    _remove_tables(prefix)


def _remove_tables(prefix: Path) -> None:
    for place in table_files.places_of(prefix):
        table_files.remove(place)


def _write_table(table: Table, prefix: Path, source: RowSource | None) -> str:
    """Writes one table; returns the reference to it."""
    identity = secrets.token_hex(8)
    if table.is_lagging and source is None:
        from sparse_operation_kit.checkpoint import engine

        return engine.compact(table, prefix, identity)
    place = table_files.new_place(prefix, table.name, identity)
    checksum = write_full(table, place, source)
    return tensorflow_part.reference(place, checksum, table.manifest.steps)
