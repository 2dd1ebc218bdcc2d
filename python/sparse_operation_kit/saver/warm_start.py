"""init_from_checkpoint: initializes tables from the checkpoint of another program."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit.checkpoint.errors import path_problem, printable
from sparse_operation_kit.checkpoint.reader import open_saved
from sparse_operation_kit.compat.internals import variable_scope
from sparse_operation_kit.newer_python import removeprefix
from sparse_operation_kit.saver.checkpoint_restore import add_load_ops
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable, is_embedding_variable


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
    prefix = prefix_of(ckpt_dir_or_file)
    variables = tables_by_name()
    pairs = []
    for source, target in assignment_map.items():
        of_entry = pairs_of(source, target, variables)
        if not of_entry or (isinstance(target, str) and source.endswith("/") != target.endswith("/")):
            raise ValueError(_no_target(source, target))
        pairs += of_entry
    for variable, key in entries_of_tables(prefix, pairs):
        replace_initializer(variable, prefix, key, optimizer_state)


def tables_by_name() -> dict[str, EmbeddingVariable]:
    """Returns the default graph's embedding variables by name."""
    in_collection = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    # Where a variable is that was created with other collections.
    in_store = variable_scope._get_default_variable_store()._vars.values()
    return {one.m_var_name: one for one in [*in_collection, *in_store] if is_embedding_variable(one)}


def prefix_of(ckpt_dir_or_file: str | bytes | os.PathLike) -> str:
    """Returns the prefix of a checkpoint, which is a directory's latest one if that is given.

    Raises:
      ValueError: The directory has no checkpoint, or the path cannot be one.
    """
    path = os.fsdecode(ckpt_dir_or_file)
    problem = path_problem(path)
    if problem is not None:
        raise ValueError(printable(f"The checkpoint {path} {problem}"))
    if not os.path.isdir(path):
        return path
    latest = tf.train.latest_checkpoint(path)
    if latest is None:
        raise ValueError(f"There is no checkpoint in the directory {path}, or its list cannot be read")
    return latest


def only_table(target: Any) -> EmbeddingVariable | None:
    """Returns the table that `target` is, or that is the only one of a list."""
    # A variable that was made with a partitioner is a table with one part.
    if isinstance(target, (list, tuple)) and len(target) == 1:
        (target,) = target
    return target if is_embedding_variable(target) else None


def pairs_of(
    source: str, target: Any, variables: Mapping[str, EmbeddingVariable]
) -> list[tuple[str, EmbeddingVariable]]:
    """Returns pairs of a name in the checkpoint and a table, for one entry of an assignment map.

    An entry that concerns ordinary variables only has none. Scopes are as in TensorFlow: without variables
    in it, a scope is no error, and what follows the last slash of its name is ignored.

    Raises:
      ValueError: A scope is assigned to a name without a slash, or a table to a list of several variables.
    """
    table = only_table(target)
    if table is not None:
        return [(source, table)]
    if not isinstance(target, str):
        _check_slices(source, target)
        return []
    if target in variables:
        return [(source, variables[target])]
    if not source.endswith("/"):
        return []
    if "/" not in target:
        raise ValueError(_no_target(source, target))
    old = removeprefix(source, "/")
    new = removeprefix(target[: target.rindex("/") + 1], "/")
    return [
        (old + name[len(new) :], variable) for name, variable in variables.items() if name.startswith(new)
    ]


def _check_slices(source: str, target: Any) -> None:
    for one in target if isinstance(target, (list, tuple)) else ():
        if is_embedding_variable(one):
            raise ValueError(
                f"'{source}' is assigned to a list of several variables, with embedding variable "
                f"'{one.m_var_name}' among them: a list holds the slices of one variable, and a table has no "
                "slices. Give each variable an entry"
            )


def _no_target(source: str, target: Any) -> str:
    """Returns the error for an entry of `init_from_checkpoint` that concerns no table."""
    if not isinstance(target, str):
        return f"'{source}' cannot be assigned to {target!r}: not an embedding variable or a name"
    if source.endswith("/") != target.endswith("/"):
        return (
            f"'{source}': '{target}' maps a scope to a variable, or a variable to a scope; the name of a "
            "scope ends with a slash"
        )
    if target.endswith("/"):
        return f"There are no embedding variables under the scope '{target}'"
    return f"'{target}', for table '{source}', is not an embedding variable of the graph"


def entries_of_tables(
    prefix: str, pairs: Sequence[tuple[str, EmbeddingVariable]]
) -> list[tuple[EmbeddingVariable, str]]:
    """Returns the tables of the pairs, each with the key of its entry in the checkpoint.

    Raises:
      ValueError: A table is not in the checkpoint.
    """
    if not pairs:
        return []
    checkpoint = open_saved(prefix)
    if checkpoint is None:
        raise tf.errors.NotFoundError(None, None, f"There is no checkpoint {prefix}")
    for source, variable in pairs:
        if checkpoint.has_table(source):
            continue
        known = ", ".join(f"'{name}'" for name in [*checkpoint.tables, *checkpoint.foreign]) or "none"
        as_tensor = (
            f". '{source}' is a tensor there, but no matrix of floats: read it with tf.train.load_variable, "
            "and set the table's rows with assign_rows"
            if tf.train.load_checkpoint(prefix).has_tensor(source)
            else ""
        )
        raise ValueError(
            f"Table '{source}', for embedding variable '{variable.m_var_name}', is not in the checkpoint "
            f"{prefix}, whose tables are: {known}{as_tensor}"
        )
    return [(variable, source) for source, variable in pairs]


def replace_initializer(variable: EmbeddingVariable, prefix: str, key: str, optimizer_state: bool) -> None:
    """Makes a table's initializer load the entry `key` of the checkpoint `prefix`."""
    with tf.control_dependencies(None), tf.name_scope(f"{variable.m_var_name}/InitFromCheckpoint/"):
        loaded = add_load_ops(
            [variable],
            prefix,
            [key],
            optimizers=optimizer_state,
            counts=optimizer_state,
            trained_by=[variable.trained_by],
        )
    variable.replace_initializer(loaded.op)
    # An optimizer that comes later takes the slots of another system's table.
    needs_optimizer = optimizer_state and not variable.trained_by and _is_foreign(prefix, key)
    variable.when_trained = (
        functools.partial(replace_initializer, variable, prefix, key, optimizer_state)
        if needs_optimizer
        else None
    )


def _is_foreign(prefix: str, key: str) -> bool:
    checkpoint = open_saved(prefix)
    return checkpoint is not None and key not in checkpoint.tables
