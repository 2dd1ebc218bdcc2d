"""The references to tables in TensorFlow's part of a checkpoint.

A table's reference is an entry with the table's name, a string scalar. In checkpoints of earlier versions
"/checkpoint" follows the name.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from sparse_operation_kit.checkpoint import table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.paths import path_problem, refuse_other_than_file
from sparse_operation_kit.checkpoint.table_files import FOLDER_SUFFIX
from sparse_operation_kit.newer_python import removesuffix

_OLD_SUFFIX = "/checkpoint"
# What every reference contains, and the strings of other variables do not.
_MARK = b'"manifest_crc32"'


@dataclass(frozen=True)
class Reference:
    """A reference to a table.

    Attributes:
      name: The table's name in the checkpoint.
      key: The name of the entry that holds the reference.
      folder: The table's path, relative to the prefix's folder.
      manifest_crc32: The CRC-32 of its manifest.
    """

    name: str
    key: str
    folder: str
    manifest_crc32: int

    def paths(self, prefix: Path) -> tuple[Path, Path]:
        """Returns where the table's path may be: at the prefix, or where it was saved."""
        leaf = self.folder.rstrip("/").rsplit("/", 1)[-1]
        return prefix.with_name(prefix.name + FOLDER_SUFFIX) / leaf, prefix.parent / self.folder


def read_references(prefix: Path) -> list[Reference]:
    """Returns the references to tables in a TensorFlow checkpoint, sorted by name. Never waits for a pipe.

    Raises:
      CheckpointError: TensorFlow cannot read the checkpoint, or a reference is damaged.
    """
    import tensorflow as tf

    _refuse_other_than_files(prefix)
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        names = [name for name, shape in sorted(shapes.items()) if shape == [] and dtypes[name] == tf.string]
        texts = {name: reader.get_tensor(name) for name in names}
    except (tf.errors.OpError, ValueError, RuntimeError, LookupError) as error:
        raise unreadable(prefix, error) from None
    return sorted(
        (_parse(prefix, key, text) for key, text in texts.items() if text[:1] == b"{" and _MARK in text),
        key=lambda reference: reference.name,
    )


def unreadable(prefix: Path, error: Exception) -> CheckpointError:
    """Returns the error for a checkpoint that TensorFlow refused with `error`."""
    message = getattr(error, "message", None) or str(error)
    return CheckpointError(prefix, f"TensorFlow cannot read it: {message}")


def _refuse_other_than_files(prefix: Path) -> None:
    """Raises CheckpointError if a part of the checkpoint is not a file: TensorFlow would wait for a pipe."""
    try:
        names = os.listdir(prefix.parent)
    except OSError as error:
        raise CheckpointError(prefix.parent, f"cannot be read: {error.strerror or error}") from None
    for name in names:
        if name == f"{prefix.name}.index" or name.startswith(f"{prefix.name}.data-"):
            refuse_other_than_file(prefix.with_name(name))


def _parse(prefix: Path, key: str, text: bytes) -> Reference:
    try:
        document = json.loads(text.decode("utf-8"))
        folder, crc, steps = document["folder"], document["manifest_crc32"], document["steps"]
        if not isinstance(folder, str) or not folder or folder.startswith("/") or path_problem(folder):
            raise ValueError(folder)
        if type(crc) is not int or not 0 <= crc < 2**32 or type(steps) is not int or not 0 <= steps < 2**63:
            raise ValueError(text)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CheckpointError(prefix, f"its '{key}' names no folder: {text[:200]!r}") from None
    # The path has the table's name too, which tells the table 't/checkpoint' from an old reference to 't'.
    is_old = key.endswith(_OLD_SUFFIX) and table_files.name_in(Path(folder)) != key
    return Reference(removesuffix(key, _OLD_SUFFIX) if is_old else key, key, folder, crc)
