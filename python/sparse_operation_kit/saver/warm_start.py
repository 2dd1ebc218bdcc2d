"""init_from_checkpoint: initializes tables from the checkpoint of another program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from sparse_operation_kit.checkpoint.paths import path_problem
from sparse_operation_kit.checkpoint.printable import printable
from sparse_operation_kit.checkpoint.references import read_references
from sparse_operation_kit.core.embedding_variable import EmbeddingVariable
from sparse_operation_kit.newer_python import removeprefix
from sparse_operation_kit.saver.checkpoint_restore import add_load_ops


def init_from_checkpoint(
    ckpt_dir_or_file: str | os.PathLike,
    assignment_map: Mapping[str, str | EmbeddingVariable],
    *,
    optimizer_state: bool = False,
) -> None:
    """Makes the initializers of embedding variables load tables from a checkpoint.

    It is the counterpart of `tf.compat.v1.train.init_from_checkpoint`: nothing is loaded until the
    initializers run. Every rank must call it and see the checkpoint.

    Args:
      ckpt_dir_or_file: A checkpoint's prefix, or a directory, whose latest checkpoint is used.
      assignment_map: Maps names in the checkpoint to variables of the default graph: `"name": variable`,
        `"name": "name of a variable"`, or `"scope/": "scope/"` for all embedding variables under a scope.
        `"/"` is the scope of all variables.
      optimizer_state: Whether to load the optimizers' slots and steps, and the counts of admission and
        eviction, too. If false, any optimizer may train the table.

    Raises:
      ValueError: A table is not in the checkpoint, a variable is not in the graph, or the directory has no
        checkpoint.
      tf.errors.NotFoundError: There is no checkpoint with this prefix.
    """
    prefix = _prefix(os.fspath(ckpt_dir_or_file))
    tf.train.load_checkpoint(prefix)  # Raises TensorFlow's error if there is none.
    saved = {reference.name: reference.key for reference in read_references(Path(prefix))}
    variables = {
        variable.m_var_name: variable
        for variable in tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        if isinstance(variable, EmbeddingVariable)
    }
    pairs = [pair for source, target in assignment_map.items() for pair in _pairs(source, target, variables)]
    for source, variable in pairs:
        if source not in saved:
            known = ", ".join(f"'{name}'" for name in sorted(saved)) or "none"
            raise ValueError(
                f"Table '{source}', for embedding variable '{variable.m_var_name}', is not in the checkpoint "
                f"{prefix}, whose tables are: {known}"
            )
    for source, variable in pairs:
        _replace_initializer(variable, prefix, saved[source], optimizer_state)


def _prefix(path: str) -> str:
    problem = path_problem(path)
    if problem is not None:
        raise ValueError(printable(f"The checkpoint {path} {problem}"))
    if not os.path.isdir(path):
        return path
    latest = tf.train.latest_checkpoint(path)
    if latest is None:
        raise ValueError(f"There is no checkpoint in the directory {path}")
    return latest


def _pairs(
    source: str, target: str | EmbeddingVariable, variables: Mapping[str, EmbeddingVariable]
) -> list[tuple[str, EmbeddingVariable]]:
    """Returns pairs of a name in the checkpoint and a variable, for one entry of an assignment map."""
    if isinstance(target, EmbeddingVariable):
        return [(source, target)]
    if not isinstance(target, str):
        raise ValueError(f"'{source}' cannot be assigned to {target!r}: not an embedding variable or a name")
    if source.endswith("/") != target.endswith("/"):
        raise ValueError(f"'{source}': '{target}' maps a scope to a variable, or a variable to a scope")
    if not target.endswith("/"):
        if target not in variables:
            raise ValueError(f"'{target}', for table '{source}', is not an embedding variable of the graph")
        return [(source, variables[target])]
    old, new = removeprefix(source, "/"), removeprefix(target, "/")
    pairs = [
        (old + removeprefix(name, new), variable)
        for name, variable in variables.items()
        if name.startswith(new)
    ]
    if not pairs:
        raise ValueError(f"There are no embedding variables under the scope '{target}'")
    return pairs


def _replace_initializer(variable: EmbeddingVariable, prefix: str, entry: str, optimizer_state: bool) -> None:
    with tf.control_dependencies(None), tf.name_scope(f"{variable.m_var_name}/InitFromCheckpoint/"):
        (reference,) = tf.raw_ops.RestoreV2(
            prefix=prefix, tensor_names=[entry], shape_and_slices=[""], dtypes=[tf.string]
        )
        _, loaded = add_load_ops(
            [variable], prefix, [reference], optimizer_state=optimizer_state, after=[reference]
        )
    variable.replace_initializer(loaded.op)
