"""Replacing methods of one object for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def shadow_methods(target: Any, **methods: Callable) -> Iterator[None]:
    """Inside the context, `target`'s methods of these names are the given functions, for this one object.

    Attributes of that name which the object itself had before come back at the end. Goes past `__setattr__`,
    which Keras optimizers use for their hyper-parameters.
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
