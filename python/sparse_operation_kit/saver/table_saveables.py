"""Tables as a `tf.compat.v1.train.Saver` has them: under their own names, or those of its dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.python.training.saving import saveable_object

from sparse_operation_kit.core.embedding_variable import EmbeddingVariable


class RenamedTable(saveable_object.SaveableObject):
    """A table that a Saver was given another name for.

    Attributes:
      table: The embedding variable.
      name: What checkpoints call it.
      checkpoint_key: As that of an embedding variable.
    """

    optional_restore = False

    def __init__(self, table: EmbeddingVariable, name: str) -> None:
        self.table = table
        self.checkpoint_key = f"{name}/checkpoint"
        spec = saveable_object.SaveSpec(
            self._refuse, "", self.checkpoint_key, tf.string, device=table.handle.device
        )
        # By the op, TensorFlow tells that one variable was given two names.
        super().__init__(table.op, [spec], name)

    def _refuse(self) -> NoReturn:
        raise TypeError(
            f"Embedding variable '{self.table.m_var_name}', as '{self.name}', can be saved by "
            "tf.compat.v1.train.Saver with TensorFlow's own builders only"
        )

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> NoReturn:
        """Refuses: Savers' wrapped methods restore tables."""
        del restored_tensors, restored_shapes
        self._refuse()


def is_table(saveable: Any) -> bool:
    """Whether a saveable object is an embedding variable, under whatever name."""
    return isinstance(saveable, (EmbeddingVariable, RenamedTable))


def tables_of(saveables: Iterable[Any]) -> list[EmbeddingVariable | RenamedTable]:
    """Those of the saveable objects that are tables."""
    return [saveable for saveable in saveables if is_table(saveable)]


def variable_of(saveable: EmbeddingVariable | RenamedTable) -> EmbeddingVariable:
    """The embedding variable that a saveable object saves."""
    return saveable.table if isinstance(saveable, RenamedTable) else saveable


def name_of(saveable: EmbeddingVariable | RenamedTable) -> str:
    """What checkpoints call the table."""
    return saveable.name if isinstance(saveable, RenamedTable) else saveable.m_var_name


def with_given_names(names_to_saveables: Any) -> Any:
    """What a Saver was given, with its tables under the names that a dictionary gives them.

    Raises:
      ValueError: The name is empty, or stands for a list in which a table is.
    """
    if not isinstance(names_to_saveables, dict):
        return names_to_saveables
    return {name: _under(name, saveable) for name, saveable in names_to_saveables.items()}


def _under(name: Any, saveable: Any) -> Any:
    if isinstance(saveable, (list, tuple)):
        for item in saveable:
            if isinstance(item, EmbeddingVariable):
                raise ValueError(
                    f"A Saver was given a list under the name '{name}', with embedding variable "
                    f"'{item.m_var_name}' in it: a list holds the slices of one variable, and a table has "
                    "none. Give the variable itself"
                )
    # TensorFlow refuses names that are no strings.
    if not isinstance(saveable, EmbeddingVariable) or not isinstance(name, str):
        return saveable
    if not name:
        raise ValueError(
            f"A Saver was given an empty name for embedding variable '{saveable.m_var_name}'; a list instead "
            "of a dictionary saves variables under their own names"
        )
    return saveable if name == saveable.m_var_name else RenamedTable(saveable, name)
