"""The modules in which TensorFlow has its public names."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import tensorflow as tf

_ABSENT = object()


def namespaces(path: str = "") -> list[ModuleType]:
    """The modules that programs reach as `path` below `tf` and below `tf.compat.v1`; for "" these themselves.

    In version 1.15 `from tensorflow.compat import v1` gives another module than `tf.compat.v1`.
    """
    roots = [tf, tf.compat.v1, importlib.import_module("tensorflow.compat.v1")]
    found = [functools.reduce(getattr, filter(None, path.split(".")), root) for root in roots]
    return list({id(module): module for module in found}.values())


def attribute(owner: ModuleType | type, name: str, default: Any = _ABSENT) -> Any:
    """Returns what `getattr` does for one of TensorFlow's namespaces, modules or classes.

    Version 1.15's namespaces log a notice when a deprecated name is read. It names the file and line that
    read it, which would be this library's. This function causes no notice.
    """
    wrapped = vars(owner).get("_tfmw_wrapped_module", owner)
    # The namespace may import the name later than what it wraps.
    found = getattr(wrapped if hasattr(wrapped, name) else owner, name, default)
    if found is _ABSENT:
        raise AttributeError(f"{owner.__name__} has no {name}")
    return found


def remove_name(namespace: ModuleType | type, name: str) -> None:
    """Removes a name that was added to a module or class of TensorFlow's.

    Version 1.15's namespaces are objects that keep copies of names, which deleting a name does not remove.
    """
    delattr(namespace, name)
    if isinstance(namespace, ModuleType):
        vars(namespace).pop(name, None)
        vars(namespace).get("_tfmw_attr_map", {}).pop(name, None)
