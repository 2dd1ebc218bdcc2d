"""Tables as saveable objects of a Saver, under their own names or the names in the Saver's dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from sparse_operation_kit.compat.internals import saveable_object
from sparse_operation_kit.compat.internals import session as tf_session
from sparse_operation_kit.tables.embedding_variable import EmbeddingVariable


class RenamedTable(saveable_object.SaveableObject):
    """A table that a Saver saves under another name.

    Attributes:
      table: The embedding variable.
      name: The table's name in checkpoints.
    """

    optional_restore = False

    def __init__(self, table: EmbeddingVariable, name: str) -> None:
        self.table = table
        spec = saveable_object.SaveSpec(self._refuse, "", name, tf.string, device=table.handle.device)
        # With the op, TensorFlow detects if one variable is given two names.
        super().__init__(table.op, [spec], name)

    def _refuse(self) -> NoReturn:
        raise TypeError(
            f"Embedding variable '{self.table.m_var_name}', as '{self.name}', can be saved by "
            "tf.compat.v1.train.Saver with TensorFlow's own builders only"
        )

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> NoReturn:
        """Raises TypeError: the wrapped methods of Savers restore tables instead."""
        del restored_tensors, restored_shapes
        self._refuse()


def is_table(saveable: Any) -> bool:
    """Returns whether a saveable object is an embedding variable, renamed or not."""
    return isinstance(saveable, (EmbeddingVariable, RenamedTable))


def tables_of(saveables: Iterable[Any]) -> list[EmbeddingVariable | RenamedTable]:
    """Returns the saveable objects that are tables."""
    return [saveable for saveable in saveables if is_table(saveable)]


def variable_of(saveable: EmbeddingVariable | RenamedTable) -> EmbeddingVariable:
    """Returns the embedding variable that a saveable object saves."""
    return saveable.table if isinstance(saveable, RenamedTable) else saveable


def name_of(saveable: EmbeddingVariable | RenamedTable) -> str:
    """Returns the table's name in checkpoints."""
    return saveable.name if isinstance(saveable, RenamedTable) else saveable.m_var_name


def with_given_names(names_to_saveables: Any) -> Any:
    """Returns a Saver's argument with tables renamed as in the dictionary, if it is one.

    Raises:
      ValueError: A table's name is empty, or a name maps to a list that contains a table.
    """
    if not isinstance(names_to_saveables, dict):
        return names_to_saveables
    return {name: _under(name, saveable) for name, saveable in names_to_saveables.items()}


def _under(name: Any, saveable: Any) -> Any:
    if isinstance(saveable, (list, tuple)):
        for item in saveable:
            if isinstance(item, EmbeddingVariable):
                raise ValueError(
                    f"A Saver was given a list under the name '{name}' that contains embedding variable "
                    f"'{item.m_var_name}': a list holds the slices of one variable, and a table has no "
                    "slices. Pass the variable itself"
                )
    # TensorFlow refuses names that are not strings.
    if not isinstance(saveable, EmbeddingVariable) or not isinstance(name, str):
        return saveable
    if not name:
        raise ValueError(
            f"A Saver was given an empty name for embedding variable '{saveable.m_var_name}'; pass a list "
            "instead of a dictionary to save variables under their own names"
        )
    return saveable if name == saveable.m_var_name else RenamedTable(saveable, name)


class Feeding(tf_session.SessionInterface):
    """A session that feeds some tensors in every run."""

    def __init__(self, session: Any, feed: dict[tf.Tensor, Any]) -> None:
        self._session = session
        self._feed = feed

    @property
    def graph(self) -> tf.Graph:
        """The session's graph."""
        return self._session.graph

    @property
    def sess_str(self) -> str:
        """The session's target."""
        return self._session.sess_str

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs the session with the tensors."""
        return self._session.run(fetches, {**self._feed, **(feed_dict or {})}, options, run_metadata)
