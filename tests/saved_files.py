"""The files of tables that Savers write beside TensorFlow's, by the names in docs/checkpoint-format.md."""

from __future__ import annotations

import pathlib
import re

import tensorflow as tf

from sparse_operation_kit.checkpoint import references


def of(prefix: str | pathlib.Path, file: str = "*") -> list[pathlib.Path]:
    """The paths of a checkpoint's tables' files, all or those called `file`, sorted."""
    prefix = pathlib.Path(prefix)
    return sorted(prefix.parent.glob(f"{prefix.name}.sok-*.{file.replace('/', '.')}"))


def manifest(prefix: str | pathlib.Path) -> pathlib.Path:
    """The path of the manifest of a checkpoint's only table."""
    (path,) = of(prefix, "manifest.json")
    return path


def named_by(directory: str | pathlib.Path, reference: str, file: str) -> pathlib.Path:
    """The path of a file of the table that a reference or a chain's link names."""
    base, leaf = reference.split("/")[-2:]
    return pathlib.Path(directory, f"{base}-{leaf}.{file.replace('/', '.')}")


def bases(directory: str | pathlib.Path) -> list[str]:
    """The prefixes, without the directory, that have any table's file, or a folder of tables; sorted."""
    directory = pathlib.Path(directory)
    paths = [*directory.glob("*.sok"), *directory.glob("*.sok-*")]
    return sorted({path.name[: path.name.rindex(".sok")] for path in paths})


def move_into_folder(prefix: str | pathlib.Path) -> pathlib.Path:
    """Makes a checkpoint one of an earlier version, whose tables are in a folder; returns the folder."""
    folder = pathlib.Path(f"{prefix}.sok")
    for path in of(prefix):
        table, file = re.fullmatch(r"(.+-[0-9a-f]{16})\.(.+)", path.name[len(folder.name) + 1 :]).groups()
        file = re.sub(r"^(shard-\d+)\.", r"\1/", file)
        (folder / table / file).parent.mkdir(parents=True, exist_ok=True)
        path.rename(folder / table / file)
    return folder


def with_old_entries(prefix: str, copy: str | None = None) -> None:
    """Gives the entries of tables in a checkpoint, or in a copy, their names in earlier versions."""
    reader = tf.train.load_checkpoint(prefix)
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    found = references.read_references(pathlib.Path(prefix))
    old = {f"{reference.name}/checkpoint": values.pop(reference.key) for reference in found}
    values.update(old)
    names = sorted(values)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(
            tf.raw_ops.SaveV2(
                prefix=copy or prefix,
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.constant(values[name]) for name in names],
            )
        )
