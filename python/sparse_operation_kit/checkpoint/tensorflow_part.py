"""Writes TensorFlow's part of a checkpoint: ordinary variables, and references to tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparse_operation_kit.checkpoint import table_files
from sparse_operation_kit.checkpoint.errors import CheckpointError
from sparse_operation_kit.checkpoint.references import read_references, unreadable


def reference(place: Path, manifest_crc32: int, steps: int) -> str:
    """Returns the reference to the table at a place beside the prefix, for TensorFlow's checkpoint."""
    path = table_files.path_of(place)
    folder = f"{path.parent.name}/{path.name}"
    return json.dumps({"folder": folder, "manifest_crc32": manifest_crc32, "steps": steps})


def write(prefix: Path, references: Mapping[str, str], copy_of: Path | None) -> None:
    """Writes TensorFlow's files of a checkpoint. Memory: all ordinary variables.

    Args:
      prefix: The prefix of the new checkpoint.
      references: The references, by table.
      copy_of: The prefix of a checkpoint whose other tensors are copied; None to write only references.

    Raises:
      CheckpointError: TensorFlow cannot read a tensor of `copy_of`, or cannot write the files.
    """
    import tensorflow as tf

    tensors: dict[str, Any] = {}
    if copy_of is not None:
        try:
            reader = tf.train.load_checkpoint(str(copy_of))
            tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
            for replaced in read_references(copy_of):
                del tensors[replaced.key]
        except (tf.errors.OpError, ValueError, RuntimeError, LookupError) as error:
            raise unreadable(copy_of, error) from None
    for name, text in references.items():
        tensors[name] = np.array(text.encode(), object)
    names = sorted(tensors)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = [tf.compat.v1.placeholder(_dtype(tensors[name])) for name in names]
        save = tf.raw_ops.SaveV2(
            prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=fed
        )
        try:
            session.run(save, {tensor: tensors[name] for tensor, name in zip(fed, names)})
        except tf.errors.OpError as error:
            raise CheckpointError(prefix, f"TensorFlow cannot write it: {error.message}") from None


def _dtype(value: Any) -> Any:
    import tensorflow as tf

    array = np.asarray(value)
    return tf.string if array.dtype.kind in "OSU" else tf.as_dtype(array.dtype)
