"""Makes one full checkpoint of a chain of full and incremental ones."""

import os
import secrets
from pathlib import Path

from sparse_operation_kit.checkpoint import tensorflow_part
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.locate import FOLDER_SUFFIX, Checkpoint, table_folder_name
from sparse_operation_kit.checkpoint.writer import refuse_existing, write_full


def compact(checkpoint: Checkpoint, prefix: Path) -> None:
    """Writes a checkpoint, the chains of its tables applied, as a full one under another prefix.

    The new one depends on no other and restores to the same state. TensorFlow's files are written last, so
    that nobody finds the checkpoint before it is whole. Ordinary variables are copied where `checkpoint` has
    them.

    Raises:
      CheckpointError: There is something under `prefix` already, a table is damaged, or its rows have yet to
        take steps that they missed.
    """
    folder = prefix.with_name(prefix.name + FOLDER_SUFFIX)
    refuse_existing(prefix.with_name(prefix.name + ".index"))
    refuse_existing(folder)
    if not prefix.parent.is_dir():
        raise CheckpointError(prefix.parent, "there is no such folder")
    tables = [entry.open() for entry in checkpoint.tables]
    for table in tables:
        table.require_current()
    references = {}
    for table in tables:
        leaf = table_folder_name(table.name, secrets.token_hex(8))
        checksum = write_full(table, folder / leaf)
        references[table.name] = tensorflow_part.reference(prefix, leaf, checksum, table.manifest.steps)
    tensorflow_part.write(Path(os.path.abspath(prefix)), references, checkpoint.prefix)
