"""What tables and lookups are in programs for DeepRec, by DeepRec's environment variables and collections."""

from __future__ import annotations

import os
from typing import Any

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.dialect import Dialect, set_dialect
from sparse_operation_kit.deeprec import arithmetic
from sparse_operation_kit.deeprec.replacement_entries import Part
from sparse_operation_kit.graphs import graph_keys

# The graph's collections of tables, and of the ops that create tables and slots before the initializers.
EMBEDDING_VARIABLES = "embedding_variables"
EV_INIT_VAR_OPS = "ev_init_var_ops"
EV_INIT_SLOT_OPS = "ev_init_slot_ops"


class _DeepRec(Dialect):
    """DeepRec's answers. Environment variables count while DeepRec's names are installed."""

    collections_of_tables = (EMBEDDING_VARIABLES,)

    def uses_row_arithmetic(self) -> bool:
        return arithmetic.of_new_table()

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
