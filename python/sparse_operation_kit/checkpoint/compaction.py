"""Merges a chain of a full and incremental checkpoints into one full checkpoint."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.checkpoint import own_files, prefix_lock, reader
from sparse_operation_kit.checkpoint.errors import CheckpointError, check_path
from sparse_operation_kit.checkpoint.locate import Checkpoint


def compact(checkpoint: Checkpoint, prefix: Path) -> None:
    """Applies the chains of a checkpoint's tables and writes a full checkpoint under another prefix.

    The new checkpoint does not depend on others and restores to the same state. Its index is written last, so
    that nothing finds it before it is complete. Other variables are copied. Memory: one shard of a table.

    Raises:
      CheckpointError: `prefix` exists already, another process is saving to it, or a table or a variable is
        damaged. Nothing that it wrote is left.
    """
    check_path(prefix)
    refuse_to_write(prefix, prefix.with_name(prefix.name + ".index"))
    try:
        lock = prefix_lock.acquire(str(prefix), patience=0)
    except (prefix_lock.PrefixInUseError, OSError) as error:
        raise CheckpointError(prefix, f"cannot be written: {error}") from None
    # Without the lock, a training program that saves beside it would remove its parts as leftovers.
    with lock:
        reader.remove_leftovers(str(prefix))
        write_anew(checkpoint.prefix, prefix)


def write_anew(source: Path, prefix: Path, tables: Sequence[str] = (), *, for_serving: bool = False) -> None:
    """Writes a checkpoint as a full one to a prefix at which there is nothing.

    Args:
      source: The checkpoint's prefix.
      prefix: The new one.
      tables: The names of the tables to write. Without any, all are written, and all other variables.
      for_serving: Whether to write only what lookups need.

    Raises:
      CheckpointError: The checkpoint is damaged, or cannot be written.
    """
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        message = native.ops.sok_compact_checkpoint(
            os.path.abspath(source),
            os.path.abspath(prefix),
            secrets.token_hex(8),
            tables=list(tables),
            for_serving=for_serving,
        )
        error = session.run(message)
    if error:
        raise CheckpointError(prefix, f"cannot be written: {error.decode()}")
    # No save may follow that would remove what could not be removed. It harms nobody if it still cannot.
    with contextlib.suppress(CheckpointError):
        reader.remove_leftovers(str(prefix))


def refuse_to_write(to: Path, path: Path) -> None:
    """Raises CheckpointError if `path` exists, or the folder of `to` does not."""
    try:
        if own_files.is_taken(path):
            raise CheckpointError(path, "exists already, and is not overwritten")
        if not own_files.is_folder(to.parent):
            raise CheckpointError(to.parent, "there is no such folder")
    except OSError as error:
        raise CheckpointError(to, f"cannot be written: {error}") from None
