"""Checks and conversions of arguments that many functions have."""

from __future__ import annotations

import operator
from typing import Any


def as_signed(value: int) -> int:
    """Returns the low 64 bits of `value` as a signed int64."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def whole_number(value: Any, what: str, least: int = 1, bits: int | None = None, kind: str = "an int") -> int:
    """Returns `value` as an int.

    Args:
      value: the argument.
      what: the beginning of error messages: whose argument it is, and its name.
      least: the smallest value that is allowed.
      bits: if given, the value must be below 2^bits.
      kind: what the argument may be, for messages.

    Raises:
      TypeError: it is no int, but for example a bool or a float.
      ValueError: it is out of range.
    """
    try:
        # An array of floats has `__index__` too, which raises.
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{what} must be {kind}, not {value!r}")
    if bits is not None and not least <= number < 2**bits:
        raise ValueError(f"{what} must be in [{least}, 2^{bits}), not {number}")
    if number < least:
        raise ValueError(f"{what} must be at least {least}, not {number}")
    return number
