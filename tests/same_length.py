"""zip_equal: pairs of sequences that must have one length, so that a comparison of pairs leaves none out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

_NONE = object()


def zip_equal(*sequences: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Like `zip`, but raises ValueError at the end if a sequence has more elements than another.

    It is `zip(...)` of Python 3.10.
    """
    for elements in itertools.zip_longest(*sequences, fillvalue=_NONE):
        if any(element is _NONE for element in elements):
            raise ValueError("zip_equal: one sequence is longer than another")
        yield elements
