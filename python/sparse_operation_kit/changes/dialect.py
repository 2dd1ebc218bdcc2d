"""What tables and lookups are where a program does not say: a dialect of TensorFlow decides it.

A dialect, such as `deeprec`, is the set of names and rules of another system. Its package overrides the
answers below while it is in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Dialect:
    """The answers of this library itself.

    Attributes:
      collections_of_tables: The dialect's collections of the graph whose members are tables.
    """

    collections_of_tables: Sequence[str] = ()

    def uses_row_arithmetic(self) -> bool:
        """Whether a table that `get_embedding_variable` or a column makes has `row_arithmetic`."""
        return False

    def keeps_frequencies(self) -> bool:
        """Whether tables of `get_embedding_variable` without a filter keep the frequencies of keys."""
        return False

    def keeps_last_steps(self) -> bool:
        """Whether tables of `get_embedding_variable` without eviction keep when rows were updated last."""
        return False

    def inserts_keys(self) -> bool:
        """Whether lookups that are built now, and train, insert keys."""
        return True

    def averages_gradients(self) -> bool:
        """Whether gradients that optimizers apply must be averages over the ranks."""
        return False

    def add_table(self, variable: Any) -> None:
        """Is called with each table that `get_embedding_variable` or a column has made."""


_current = Dialect()


def dialect() -> Dialect:
    """Returns the dialect that is in use. Its answers may change between calls."""
    return _current


def set_dialect(new: Dialect) -> None:
    """Makes `new` the dialect of the process."""
    global _current
    _current = new
