"""Maps TensorFlow's and Keras' initializers to the library's own.

A table creates a row when its key first occurs, on any rank and in any order. So the initial row must be a
function of the seed, the table and the key. TensorFlow's initializers are functions of a shape. Initializers
whose elements are independent draws are replaced by draws from the same distribution for each key. A program
may also give the rows: a list, an array, or a matrix that is drawn from a seeded initializer. Key `k` then
has row `k % rows` of them.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sparse_operation_kit.newer_python import removesuffix


class RowInitializer(NamedTuple):
    """The arguments of a table's initializer op: a kind of distribution, its parameters, and a seed.

    The kind "given" has neither: see `given_rows`.
    """

    kind: str
    args: tuple[float, ...]
    seed: int = 0


_DEFAULT = RowInitializer("uniform", (-0.05, 0.05))
GIVEN = RowInitializer("given", ())
# The standard deviation of a standard normal distribution truncated at 2. VarianceScaling divides by it.
_TRUNCATED_STDDEV = 0.87962566103423978
_KNOWN = (
    "None, a number, zeros, ones, constant, random_uniform, random_normal, truncated_normal, "
    "variance_scaling, glorot_uniform, glorot_normal, he_uniform, he_normal, lecun_uniform, lecun_normal"
)


# The largest finite float32.
_LARGEST = float(np.finfo(np.float32).max)
# The maximum distance of a draw from the mean, in standard deviations.
_DEVIATIONS = {"normal": 9.0, "truncated_normal": 2.0}


def as_kept(value: float, row_dtype: Any) -> float:
    """Returns what a row that is kept in `row_dtype` has of a value."""
    dtype = tf.as_dtype(row_dtype)
    if dtype == tf.float32:
        return value
    with np.errstate(over="ignore"):
        return float(np.asarray(value, np.float32).astype(dtype.as_numpy_dtype))


def constant_value(kind: str, args: Sequence[float], default: float | None, row_dtype: Any) -> float | None:
    """Returns the value of all columns of new rows; None if there is none, or other rows may have it too.

    Args:
      kind: The kind of a table's initializer.
      args: Its parameters.
      default: What keys that a filter does not admit read as; None without such a filter.
      row_dtype: That of the table's rows.
    """
    if kind != "constant":
        return None
    value = as_kept(args[0], row_dtype)
    return None if default is not None and value == as_kept(default, row_dtype) else value


def row_initializer(initializer: Any, name: str, rows: int | None, dim: int) -> RowInitializer:
    """Returns the row initializer for a user's `initializer` argument.

    Args:
      initializer: None (uniform in [-0.05, 0.05)), a number, the name of a Keras initializer, or an instance
        or class of a TensorFlow or Keras initializer of one of the known kinds.
      name: The variable's name, for error messages.
      rows: The number of rows that variance scaling uses; None if there is none.
      dim: Number of floats in a row.

    Raises:
      ValueError: The name is unknown, an argument of the initializer is not one number, a uniform
        distribution has its end below its beginning, variance scaling has no `rows`, or values are not finite
        in float32.
      TypeError: The initializer is of an unknown kind.
    """
    if initializer is None:
        return _DEFAULT
    result = _row_initializer(initializer, name, rows, dim)
    _check_finite(result, name)
    return result


def _row_initializer(initializer: Any, name: str, rows: int | None, dim: int) -> RowInitializer:
    if isinstance(initializer, numbers.Real) and not isinstance(initializer, bool):
        return RowInitializer("constant", (_number(initializer),))
    if isinstance(initializer, str):
        initializer = _by_name(initializer, name)
    if isinstance(initializer, type):
        initializer = initializer()
    return _from_instance(initializer, name, rows, dim)


def _by_name(text: str, name: str) -> Any:
    try:
        return tf.keras.initializers.get(text)
    except ValueError as error:
        raise ValueError(
            f"Embedding variable '{name}': unknown initializer '{text}'; known are {_KNOWN}"
        ) from error


def _from_instance(initializer: Any, name: str, rows: int | None, dim: int) -> RowInitializer:
    kind = type(initializer).__name__.lower().replace("_", "")
    kind = removesuffix(removesuffix(kind, "v1"), "v2")
    config = initializer.get_config() if hasattr(initializer, "get_config") else {}
    seed = config.get("seed") or 0
    if not isinstance(seed, int):
        seed = 0  # In Keras 3 this is the config of a seed generator, which does not affect rows.
    if kind == "zeros":
        return RowInitializer("constant", (0.0,))
    if kind == "ones":
        return RowInitializer("constant", (1.0,))
    if kind == "constant":
        return RowInitializer("constant", (_scalar(config.get("value"), name),))
    if kind in ("randomuniform", "uniform"):
        low, high = _scalar(config.get("minval"), name), config.get("maxval")
        high = 1.0 if high is None else _scalar(high, name)
        if high < low:
            raise ValueError(f"Embedding variable '{name}': uniform initial values from {low} to {high}")
        return RowInitializer("uniform", (low, high), seed)
    if kind in ("randomnormal", "truncatednormal"):
        args = (_scalar(config.get("mean"), name), _scalar(config.get("stddev"), name))
        return RowInitializer("normal" if kind == "randomnormal" else "truncated_normal", args, seed)
    if "distribution" in config or kind in _SCALINGS:
        return _variance_scaling(kind, config, name, rows, dim, seed)
    raise TypeError(
        f"Embedding variable '{name}': {type(initializer).__name__} cannot make one row at a time; known "
        f"initializers are {_KNOWN}"
    )


# (scale, mode, distribution) of the named forms of variance scaling, whose config does not contain them.
_SCALINGS = {
    "glorotuniform": (1.0, "fan_avg", "uniform"),
    "glorotnormal": (1.0, "fan_avg", "truncated_normal"),
    "heuniform": (2.0, "fan_in", "uniform"),
    "henormal": (2.0, "fan_in", "truncated_normal"),
    "lecununiform": (1.0, "fan_in", "uniform"),
    "lecunnormal": (1.0, "fan_in", "truncated_normal"),
}


def _variance_scaling(
    kind: str, config: dict[str, Any], name: str, rows: int | None, dim: int, seed: int
) -> RowInitializer:
    if rows is None:
        raise ValueError(
            f"Embedding variable '{name}': an initializer that scales with the number of rows needs "
            "a table with a capacity, or an InitializerOption, whose default_value_dim it then uses"
        )
    named = _SCALINGS.get(kind, (1.0, "fan_in", "truncated_normal"))
    scale = float(config.get("scale", named[0]))
    mode = config.get("mode", named[1])
    distribution = config.get("distribution", named[2])
    fan = {"fan_in": rows, "fan_out": dim, "fan_avg": (rows + dim) / 2.0}[mode]
    variance = scale / max(1.0, fan)
    if distribution == "uniform":
        limit = math.sqrt(3.0 * variance)
        return RowInitializer("uniform", (-limit, limit), seed)
    if distribution == "untruncated_normal":
        return RowInitializer("normal", (0.0, math.sqrt(variance)), seed)
    return RowInitializer("truncated_normal", (0.0, math.sqrt(variance) / _TRUNCATED_STDDEV), seed)


def _scalar(value: Any, name: str) -> float:
    if isinstance(value, tf.Tensor):
        value = tf.get_static_value(value)
    try:
        return _number(value)
    except TypeError:
        raise ValueError(
            f"Embedding variable '{name}': an initializer's argument must be one number, not {value!r}"
        ) from None


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an int of more than 308 digits
        return math.inf if value > 0 else -math.inf


def _check_finite(initializer: RowInitializer, name: str) -> None:
    """Raises ValueError unless every value that may be drawn is a finite float32."""
    args = initializer.args
    for value in args:
        if not abs(value) <= _LARGEST:
            raise ValueError(
                f"Embedding variable '{name}': an initial value must be finite in float32, not {value}"
            )
    if initializer.kind in _DEVIATIONS:
        mean, stddev = args
        if not abs(mean) + _DEVIATIONS[initializer.kind] * abs(stddev) <= _LARGEST:
            raise ValueError(
                f"Embedding variable '{name}': initial values of mean {mean} and standard deviation {stddev} "
                "must be finite in float32"
            )


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
