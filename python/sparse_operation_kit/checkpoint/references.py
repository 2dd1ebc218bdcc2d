"""The references to table folders in TensorFlow's part of a checkpoint."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.paths import path_problem, refuse_other_than_file
from sparse_operation_kit.checkpoint.table_files import FOLDER_SUFFIX

REFERENCE_SUFFIX = "/checkpoint"


@dataclass(frozen=True)
class Reference:
    """A table's name in a checkpoint, its path relative to the prefix's folder, its manifest's CRC-32."""

    name: str
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
        names = [
            name
            for name, shape in sorted(shapes.items())
            if name.endswith(REFERENCE_SUFFIX) and shape == [] and dtypes[name] == tf.string
        ]
        texts = {name: reader.get_tensor(name) for name in names}
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise unreadable(prefix, error) from None
    return [
        _parse(prefix, name, text)
        for name, text in texts.items()
        if text.lstrip()[:1] == b"{"  # Otherwise it is a variable of the user.
    ]


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


def _parse(prefix: Path, name: str, text: bytes) -> Reference:
    try:
        document = json.loads(text.decode("utf-8"))
        folder, crc, steps = document["folder"], document["manifest_crc32"], document["steps"]
        if not isinstance(folder, str) or not folder or folder.startswith("/") or path_problem(folder):
            raise ValueError(folder)
        if type(crc) is not int or not 0 <= crc < 2**32 or type(steps) is not int or not 0 <= steps < 2**63:
            raise ValueError(text)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CheckpointError(prefix, f"its '{name}' names no folder: {text[:200]!r}") from None
    return Reference(name[: -len(REFERENCE_SUFFIX)], folder, crc)
