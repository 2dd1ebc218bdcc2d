"""Scopes that say which embedding columns are looked up together."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import itertools
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from sparse_operation_kit.core import replacements
from sparse_operation_kit.core.replacement_table import Part


@dataclasses.dataclass(frozen=True)
class Group:
    """What columns of one group have in common; compared by value, so that copies of columns stay in it.

    Attributes:
      name: The scope's, or "group_embedding" for one without.
      number: 0 for a scope with a name; of its own for each scope without.
    """

    name: str
    number: int = 0

    @property
    def op_name(self) -> str:
        """The name as an op may have it."""
        return re.sub(r"[^A-Za-z0-9_.\-]", "_", self.name).lstrip("_-") or "group_embedding"


_current: contextvars.ContextVar[Group | None] = contextvars.ContextVar("group_embedding_scope", default=None)
_numbers = itertools.count(1)
_training: contextvars.ContextVar[bool | tf.Tensor] = contextvars.ContextVar(
    "feature_columns_training", default=True
)


@contextlib.contextmanager
def group_embedding_column_scope(name: str | None = None) -> Iterator[None]:
    """Embedding columns made inside are looked up together.

    `tf.compat.v1.feature_column.input_layer` and `DenseFeatures` look up in one op, and over ranks in one set
    of exchanges, those of their columns that were made in the same scope and that have embedding variables
    (see `categorical_column_with_embedding`); the result is what it is without the scope. Columns with
    ordinary variables are looked up by TensorFlow's ops, inside the scope as outside.

    Scopes nest: a column belongs to the innermost. A name used again goes on with the same group; each scope
    without a name is a group of its own.

    Args:
      name: A string that is not empty, or None.

    Raises:
      TypeError: The name is neither a string nor None.
      ValueError: It is empty.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"group_embedding_column_scope: name must be a string or None, not {name!r}")
    if name is not None and not name:
        raise ValueError("group_embedding_column_scope: name must not be empty")
    replacements.install(Part.FEATURE_COLUMNS)
    group = Group("group_embedding", next(_numbers)) if name is None else Group(name)
    token = _current.set(group)
    try:
        yield
    finally:
        _current.reset(token)


def current_group() -> Group | None:
    """The group of the innermost scope that is open, None outside of scopes."""
    return _current.get()


@contextlib.contextmanager
def training_scope(training: bool | tf.Tensor) -> Iterator[None]:
    """Says of the lookups that are built inside whether keys that are not there get rows.

    It holds for every column with an embedding variable, in a group or not, wherever it is looked up:
    `tf.compat.v1.feature_column.input_layer` and `linear_model`, `InputLayer` objects, and `DenseFeatures`
    that is not called with `training`. Outside of such scopes keys get rows. Of scopes in each other the
    innermost holds.

    An Estimator builds its graphs where it is called: `with training_scope(False): estimator.evaluate(...)`
    holds for a model whose code is not one's own. A model function has the scope
    `training_scope(mode == tf.estimator.ModeKeys.TRAIN)`.

    Args:
      training: A bool or a scalar bool tensor. Without, keys that are not there read as their initial values,
        nothing is counted for admission, and there are no gradients for the embedding variables.

    Raises:
      TypeError: It is neither a bool nor a bool tensor.
      ValueError: It is a tensor, but no scalar.
    """
    if not isinstance(training, (bool, np.bool_)):
        if not tf.is_tensor(training) or training.dtype != tf.bool:
            raise TypeError(
                f"training_scope: training must be a bool or a scalar bool tensor, not {training!r}"
            )
        if not training.shape.is_compatible_with([]):
            raise ValueError(f"training_scope: training has shape {training.shape}, not []")
    token = _training.set(training)
    try:
        yield
    finally:
        _training.reset(token)


def current_training() -> bool | tf.Tensor:
    """What the innermost `training_scope` says."""
    return _training.get()
