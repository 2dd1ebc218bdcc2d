"""Checks of arguments that the layers share."""

from typing import Any


def check_count(layer: str, argument: str, value: Any, optional: bool = False) -> int | None:
    """Returns `value`, which must be an int of at least 1, or None where that is allowed.

    Raises:
      TypeError, ValueError: It is not; the message names the layer, the argument and the value.
    """
    if value is None and optional:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{layer}: {argument} must be an int, not {value!r}")
    if value < 1:
        raise ValueError(f"{layer}: {argument} must be at least 1, not {value}")
    return int(value)
