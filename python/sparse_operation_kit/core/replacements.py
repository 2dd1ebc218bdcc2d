"""Methods of TensorFlow's classes that the library wraps, and how they become what they were."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

_ABSENT = object()


class Replacements:
    """Replaced methods of classes. True while there are any. Not thread-safe, as building graphs is not."""

    def __init__(self) -> None:
        # (class, attribute, what the class itself held under that name).
        self._replaced: list[tuple[type | ModuleType, str, Any]] = []

    def replace(self, cls: type | ModuleType, name: str, wrap: Callable[[Callable], Callable]) -> None:
        """Makes `cls.name` what `wrap` returns for it; `cls` is a class or a module."""
        self._replaced.append((cls, name, vars(cls).get(name, _ABSENT)))
        setattr(cls, name, wrap(getattr(cls, name)))

    def undo(self) -> None:
        """Makes every class what it was before."""
        while self._replaced:
            cls, name, before = self._replaced.pop()
            if before is _ABSENT:
                delattr(cls, name)
            else:
                setattr(cls, name, before)

    def __bool__(self) -> bool:
        return bool(self._replaced)
