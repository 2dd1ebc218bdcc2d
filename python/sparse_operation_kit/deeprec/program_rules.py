"""What tables and lookups are in programs for DeepRec: by its variables, collections and arithmetic."""

from __future__ import annotations

import logging
import os
from typing import Any

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.dialect import Dialect, set_dialect
from sparse_operation_kit.deeprec.replacement_entries import Part
from sparse_operation_kit.graphs import graph_keys

_logger = logging.getLogger(__name__)
# What the program has chosen; None: DeepRec's arithmetic if DeepRec's names are installed.
_chosen: bool | None = None
# What has been logged.
_told: set[bool] = set()

_MESSAGES = {
    True: (
        "Embedding variables of get_embedding_variable and of columns have DeepRec's arithmetic: a key's "
        "initial row is row key % default_value_dim of a matrix; AdamOptimizer leaves rows outside the batch "
        "alone; l1 of FtrlOptimizer is group lasso over a row. Ordinary variables have TensorFlow's. "
        "sparse_operation_kit.deeprec.use_deeprec_arithmetic(False) gives tables this library's arithmetic."
    ),
    False: (
        "Embedding variables of get_embedding_variable and of columns have this library's arithmetic, not "
        "DeepRec's: each key has its own initial row; AdamOptimizer and FtrlOptimizer train tables as they "
        "train ordinary variables."
    ),
}


def use_deeprec_arithmetic(enabled: bool) -> None:
    """Chooses the arithmetic of tables that `get_embedding_variable` and feature columns make from now on.

    It holds for the tables of `get_embedding_variable` and of columns over
    `categorical_column_with_embedding`, under any of their names. Tables that exist keep theirs. Without a
    call, tables have DeepRec's arithmetic while DeepRec's names are installed (`sparse_operation_kit.deeprec`
    is imported), and this library's otherwise.

    With DeepRec's arithmetic

    - the initial row of a key is row `key % default_value_dim` of a matrix that the initializer draws, where
      the remainder is not negative and `default_value_dim` is that of the `InitializerOption` (4096);
    - `tf.compat.v1.train.AdamOptimizer` changes only rows that have a gradient;
    - `tf.compat.v1.train.FtrlOptimizer` applies l1 to the norm of a row (group lasso).

    Subclasses of these optimizers that train tables do the same. Other optimizers, and ordinary variables,
    are not affected. The log says once which arithmetic is in use.

    Raises:
      TypeError: `enabled` is not a bool.
    """
    global _chosen
    if not isinstance(enabled, bool):
        raise TypeError(f"use_deeprec_arithmetic: enabled must be True or False, not {enabled!r}")
    _chosen = enabled


def forget_choice() -> None:
    """Undoes `use_deeprec_arithmetic`."""
    global _chosen
    _chosen = None


def uses_deeprec_arithmetic() -> bool:
    """Returns whether tables that DeepRec's functions make now have DeepRec's arithmetic."""
    return replacements.is_installed(Part.NAMES) if _chosen is None else _chosen


def of_new_table() -> bool:
    """Returns `uses_deeprec_arithmetic()` for a table that is being made, and logs the result once."""
    uses = uses_deeprec_arithmetic()
    if uses not in _told and (uses or replacements.is_installed(Part.NAMES)):
        _told.add(uses)
        _logger.warning(_MESSAGES[uses])
    return uses


# The graph's collections of tables, and of the ops that create tables and slots before the initializers.
EMBEDDING_VARIABLES = "embedding_variables"
EV_INIT_VAR_OPS = "ev_init_var_ops"
EV_INIT_SLOT_OPS = "ev_init_slot_ops"


class _DeepRec(Dialect):
    """DeepRec's answers. Environment variables count while DeepRec's names are installed."""

    collections_of_tables = (EMBEDDING_VARIABLES,)

    def uses_row_arithmetic(self) -> bool:
        return of_new_table()

    def keeps_frequencies(self) -> bool:
        return _is_set("TF_RECORD_FREQ", "1")

    def keeps_last_steps(self) -> bool:
        return _is_set("TF_RECORD_VERSION", "1")

    def inserts_keys(self) -> bool:
        return not _is_set("INFERENCE_MODE", "1", "true")

    def averages_gradients(self) -> bool:
        return replacements.is_installed(Part.COLLECTIVE_TRAINING)

    def add_table(self, variable: Any) -> None:
        """Adds the table, and the op that creates it if there is none, to DeepRec's collections.

        `EV_INIT_SLOT_OPS` stays empty: slots are parts of rows.
        """
        variable.graph.add_to_collection(EMBEDDING_VARIABLES, variable)
        variable.graph.add_to_collection(EV_INIT_VAR_OPS, variable.make_if_missing())


def _is_set(name: str, *values: str) -> bool:
    return os.environ.get(name, "").lower() in values and replacements.is_installed(Part.NAMES)


graph_keys.register_collection_of_tables(EMBEDDING_VARIABLES)
set_dialect(_DeepRec())
