"""Replaces methods of one object temporarily."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def shadow_methods(target: Any, **methods: Callable) -> Iterator[None]:
    """Returns a context in which the methods of the object `target` are replaced by the given functions.

    Instance attributes of the same names are restored at the end. Bypasses `__setattr__`, which Keras
    optimizers override for their hyper-parameters.
    """
    attributes = vars(target)
    before = {name: attributes[name] for name in methods if name in attributes}
    attributes.update(methods)
    try:
        yield
    finally:
        for name in methods:
            del attributes[name]
        attributes.update(before)
