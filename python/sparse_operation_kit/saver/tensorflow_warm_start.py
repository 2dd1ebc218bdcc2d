"""Lets TensorFlow's `init_from_checkpoint` and warm start load tables, together with ordinary variables.

For a graph without embedding variables, the wrappers call the originals with the same arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.compat.internals import variable_scope
from sparse_operation_kit.saver import left_out_tables
from sparse_operation_kit.saver.warm_start import (
    entries_of_tables,
    only_table,
    pairs_of,
    prefix_of,
    replace_initializer,
    tables_by_name,
)
from sparse_operation_kit.tables.embedding_variable import is_embedding_variable

_CHECKPOINTS = "tensorflow.python.training.checkpoint_utils"
_WARM_START = "tensorflow.python.training.warm_starting_util"


@replacements.wraps(f"{_CHECKPOINTS}._init_from_checkpoint")
def _with_tables(original: Callable, ckpt_dir_or_file: Any, assignment_map: Any) -> Any:
    """Wraps what `tf.compat.v1.train.init_from_checkpoint` calls, and so `tf.compat.v1.train.warm_start`."""
    variables = tables_by_name()
    if not variables:
        return original(ckpt_dir_or_file, assignment_map)
    is_mapping = isinstance(assignment_map, Mapping)
    entries = list(assignment_map.items() if is_mapping else assignment_map)
    pairs, others = [], []
    for source, target in entries:
        pairs += pairs_of(source, target, variables)
        if only_table(target) is None and not (isinstance(target, str) and target in variables):
            others.append((source, target))
    # Nothing changes before all tables were found.
    prefix = prefix_of(ckpt_dir_or_file) if pairs else ""
    found = entries_of_tables(prefix, pairs)
    with _without_tables(variable_scope._get_default_variable_store()):
        result = original(ckpt_dir_or_file, dict(others) if is_mapping else others)
    for variable, key in found:
        replace_initializer(variable, prefix, key, optimizer_state=False)
    if not found:
        left_out_tables.warn_of_map(prefix_of(ckpt_dir_or_file), [source for source, _ in others])
    return result


@replacements.wraps(f"{_WARM_START}._infer_var_name")
def _name_in_checkpoints(original: Callable, var: Any) -> Any:
    """Wraps what `tf.compat.v1.train.warm_start` takes a variable's name from."""
    table = only_table(var)
    return original(var) if table is None else table.m_var_name


@replacements.wraps(f"{_WARM_START}._warm_start_var_with_vocab")
def _without_vocabulary(original: Callable, var: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps what `tf.compat.v1.train.warm_start` calls for a variable with a `VocabInfo`."""
    table = only_table(var)
    if table is None:
        return original(var, *args, **kwargs)
    raise ValueError(
        f"Embedding variable '{table.m_var_name}' cannot be warm-started with a VocabInfo: its rows have "
        "keys, and no order that a vocabulary could change. Leave it out of var_name_to_vocab_info, and "
        "each key gets its row. If the new keys are lines of another vocabulary, load the rows with "
        "sparse_operation_kit.checkpoint's row_blocks, and give them their new keys with the variable's "
        "assign_rows"
    )


@contextlib.contextmanager
def _without_tables(store: Any) -> Iterator[None]:
    """Hides the tables in a variable store, where TensorFlow looks for the variables of a scope."""
    everything = store._vars
    store._vars = {name: one for name, one in everything.items() if not is_embedding_variable(one)}
    try:
        yield
    finally:
        store._vars = everything
