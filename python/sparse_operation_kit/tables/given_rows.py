"""Initial rows that a program gives: a list, an array, or a matrix that is drawn from a seeded initializer.

Key `k` has row `k % rows` of them.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_LARGEST = float(np.finfo(np.float32).max)


def given_rows(initializer: Any, name: str, dim: int, drawn: int) -> Callable[[], tf.Tensor] | None:
    """Returns a function that returns given rows, a float32 tensor `[rows, dim]`; None if there are none.

    A list or array is one constant; each call draws from an initializer by another op.

    Args:
      initializer: A user's `initializer` argument.
      name: The variable's name, for error messages.
      dim: Number of floats in a row.
      drawn: The number of rows of the matrix in tables with `row_arithmetic`; 0 in others. An
        initializer with a seed then draws what it draws for an ordinary variable `[drawn, dim]`. Without a
        seed the draws would differ between runs and ranks.

    Raises:
      ValueError: A list or array does not have the shape `[dim]` or `[rows, dim]`, or a value is not finite
        in float32.
      TypeError: A value is not a number.
    """
    if isinstance(initializer, (list, tuple, np.ndarray)):
        rows = _checked(initializer, name, dim)
        return functools.lru_cache(maxsize=None)(lambda: tf.constant(rows))
    if drawn and callable(initializer) and _seed(initializer) is not None:
        return lambda: initializer([drawn, dim], dtype=tf.float32)
    return None


def _checked(values: Any, name: str, dim: int) -> np.ndarray:
    who = f"Embedding variable '{name}'"
    rows = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    if rows.ndim not in (1, 2) or rows.size == 0 or rows.shape[-1] != dim:
        raise ValueError(
            f"{who}: initial rows must have the shape [{dim}] or [rows, {dim}], not {list(rows.shape)}"
        )
    # A loop over millions of numbers takes seconds, so of an array of numbers it checks only the suspicious.
    is_numeric = rows.dtype.kind in "iuf"
    suspects = rows[~(np.abs(rows.astype(np.float64)) <= _LARGEST)] if is_numeric else rows
    for value in suspects.ravel().tolist():
        if not _is_number(value):
            raise TypeError(f"{who}: the initial value {value!r} is not a number")
        if not abs(value) <= _LARGEST:
            raise ValueError(f"{who}: an initial value must be finite in float32, not {value}")
    return np.atleast_2d(rows.astype(np.float32))


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _seed(initializer: Any) -> int | None:
    """The seed of an initializer object; None for a class, or without one."""
    if isinstance(initializer, type) or not hasattr(initializer, "get_config"):
        return None
    seed = initializer.get_config().get("seed")
    return seed if isinstance(seed, int) else None
