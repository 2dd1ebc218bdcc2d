"""Compaction by the C++ engine, which can apply the steps that rows of exact Adam still lack."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.checkpoint import table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.format import Table


def compact(table: Table, prefix: Path, identity: str) -> str:
    """Applies a table's chain and writes a full checkpoint beside a prefix. Returns the reference to it.

    Memory: one shard of the table.

    Raises:
      CheckpointError: The checkpoint is damaged, or cannot be written.
    """
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        path = str(table_files.path_of(table.last.path))
        compacted = native.ops.sok_compact_checkpoint(path, str(prefix), identity)
        reference, message = session.run([compacted.reference, compacted.message])
    if message:
        raise CheckpointError(table.last.path, f"cannot be made a full checkpoint: {message.decode()}")
    return reference.decode()
