"""Functions that newer versions of Python have and the lowest supported one lacks."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any


def removeprefix(text: str, prefix: str) -> str:
    """`text` without `prefix`, if it begins with it; `str.removeprefix` of Python 3.9."""
    return text[len(prefix) :] if text.startswith(prefix) else text


def removesuffix(text: str, suffix: str) -> str:
    """`text` without `suffix`, if it ends with it; `str.removesuffix` of Python 3.9."""
    return text[: -len(suffix)] if suffix and text.endswith(suffix) else text


@contextlib.contextmanager
def set_within(variable: contextvars.ContextVar, value: Any) -> Iterator[None]:
    """A context in which a context variable has a value; `with variable.set(value)` of Python 3.14."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
