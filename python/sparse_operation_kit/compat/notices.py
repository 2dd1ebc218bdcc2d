"""TensorFlow's notices that a function is deprecated. They name the file and line that called it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sparse_operation_kit.compat.internals import deprecation


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Calls deprecated functions without notices, which would name files of this library.

    Not thread-safe, like building graphs.
    """
    before = deprecation._PRINT_DEPRECATION_WARNINGS
    # Not deprecation.silence(): after an error, it would leave the notices off.
    deprecation._PRINT_DEPRECATION_WARNINGS = False
    try:
        yield
    finally:
        deprecation._PRINT_DEPRECATION_WARNINGS = before
