"""Scopes that set which embedding columns are looked up together, whether lookups insert keys, and masks."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import Part
from sparse_operation_kit.newer_python import set_within


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of columns. Groups are compared by value, so that copies of columns stay in their group.

    Attributes:
      name: The scope's name, or "group_embedding" for a scope without a name.
      number: 0 for a scope with a name, a unique number for each scope without a name.
    """

    name: str
    number: int = 0

    @property
    def op_name(self) -> str:
        """The name with only the characters that op names may have."""
        return re.sub(r"[^A-Za-z0-9_.\-]", "_", self.name).lstrip("_-") or "group_embedding"


_current: contextvars.ContextVar[Group | None] = contextvars.ContextVar("group_embedding_scope", default=None)
_numbers = itertools.count(1)
_training: contextvars.ContextVar[bool | tf.Tensor] = contextvars.ContextVar(
    "feature_columns_training", default=True
)
_masks: contextvars.ContextVar[Mapping[str, Any] | None] = contextvars.ContextVar(
    "adaptive_mask_tensors", default=None
)


@contextlib.contextmanager
def group_embedding_column_scope(name: str | None = None) -> Iterator[None]:
    """Returns a context; the embedding columns created inside it are looked up together.

    `tf.compat.v1.feature_column.input_layer` and `DenseFeatures` look up the scope's columns with embedding
    variables (see `categorical_column_with_embedding`) in one op, and with several ranks in one set of
    exchanges. The result is the same as without the scope. Columns with ordinary variables are looked up by
    TensorFlow's ops, inside and outside scopes.

    Scopes can be nested; a column belongs to the innermost scope. Scopes with the same name are the same
    group; each scope without a name is a separate group.

    Args:
      name: A non-empty string, or None.

    Raises:
      TypeError: The name is neither a string nor None.
      ValueError: The name is empty.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"group_embedding_column_scope: name must be a string or None, not {name!r}")
    if name is not None and not name:
        raise ValueError("group_embedding_column_scope: name must not be empty")
    replacements.install(Part.FEATURE_COLUMNS)
    group = Group("group_embedding", next(_numbers)) if name is None else Group(name)
    with set_within(_current, group):
        yield


def current_group() -> Group | None:
    """Returns the group of the innermost open scope, None outside scopes."""
    return _current.get()


@contextlib.contextmanager
def training_scope(training: bool | tf.Tensor) -> Iterator[None]:
    """Returns a context that sets whether lookups built inside it insert keys.

    It applies to every column with an embedding variable, in a group or not, in
    `tf.compat.v1.feature_column.input_layer` and `linear_model`, in `InputLayer` objects, and in
    `DenseFeatures` if that is not called with `training`. Outside such scopes lookups insert keys. In nested
    scopes the innermost applies.

    Write a model function inside `training_scope(mode == tf.estimator.ModeKeys.TRAIN)`. For a model whose
    code cannot be changed, use `with training_scope(False): estimator.evaluate(...)`; the Estimator builds
    its graph inside that call.

    Args:
      training: A bool or a scalar bool tensor. If false, keys without a row read as their initial values,
        nothing is counted for admission, and the embedding variables get no gradients.

    Raises:
      TypeError: `training` is neither a bool nor a bool tensor.
      ValueError: `training` is a tensor, but not a scalar.
    """
    if not isinstance(training, (bool, np.bool_)):
        if not tf.is_tensor(training) or training.dtype != tf.bool:
            raise TypeError(
                f"training_scope: training must be a bool or a scalar bool tensor, not {training!r}"
            )
        if not training.shape.is_compatible_with([]):
            raise ValueError(f"training_scope: training has shape {training.shape}, not []")
    with set_within(_training, training):
        yield


def current_training() -> bool | tf.Tensor:
    """Returns the `training` of the innermost `training_scope`, True outside such scopes."""
    return _training.get()


def adaptive_masks(masks: Mapping[str, Any] | None) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which columns of DeepRec's adaptive embedding use these masks.

    Args:
      masks: Int or bool tensors [batch], by the keys of the columns' features; or None.

    Raises:
      TypeError: `masks` is something else.
    """
    if masks is not None and not isinstance(masks, Mapping):
        raise TypeError(f"adaptive_mask_tensors must be a dictionary of tensors, not {masks!r}")
    return set_within(_masks, masks)


def current_masks() -> Mapping[str, Any] | None:
    """Returns the masks of the innermost `adaptive_masks`, None outside of them."""
    return _masks.get()
