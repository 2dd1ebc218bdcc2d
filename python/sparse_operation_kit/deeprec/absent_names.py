"""Errors for DeepRec's names that are absent here, which say what to use instead."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import re
import types
from typing import Any

from sparse_operation_kit.changes import replacements
from sparse_operation_kit.deeprec.names import ABSENT
from sparse_operation_kit.deeprec.replacement_entries import (
    LATE_OWNERS_OF_ABSENT_NAMES,
    OWNERS_OF_ABSENT_NAMES,
    Part,
)

# By full name.
ERRORS = {name: f"{name} of DeepRec is absent here: {instead}" for name, instead in ABSENT.items()}
_ERRORS_BY_LAST_PART = {name.rpartition(".")[2]: error for name, error in ERRORS.items()}
# The full names of the modules from which programs import names of `tf`.
_TENSORFLOW = re.compile(r"tensorflow(\._api\.v\d+)?(\.compat\.v1)?\.")
_THIS_PACKAGE = "sparse_operation_kit.deeprec."


def error_in_this_package(name: str) -> str | None:
    """Returns the error for a name of DeepRec that `sparse_operation_kit.deeprec` lacks; None for others."""
    return _ERRORS_BY_LAST_PART.get(name)


def _error_of_module(name: str) -> str | None:
    """Returns the error for importing the module, or for importing a name from a module."""
    if name in ERRORS:
        return ERRORS[name]
    if name.startswith(_THIS_PACKAGE):
        return error_in_this_package(name[len(_THIS_PACKAGE) :])
    below = _TENSORFLOW.match(name)
    return ERRORS.get(f"tf.{name[below.end() :]}") if below else None


class _Finder(importlib.abc.MetaPathFinder):
    """Finds no module. For a name of DeepRec, it raises the error."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Returns None, or raises ModuleNotFoundError."""
        error = _error_of_module(fullname)
        if error is not None:
            # Not with `name=`: `from tensorflow import NAME` would hide the error behind one of its own.
            raise ModuleNotFoundError(error)


class _LateModules(importlib.abc.MetaPathFinder):
    """Finds the modules of tf.contrib that have errors, and installs these once a module is imported."""

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns what Python's own finder of files does for these modules, None for others."""
        if fullname not in LATE_OWNERS_OF_ABSENT_NAMES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            replacements.reach_new_modules(Part.NAMES)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _error_in_namespace(namespace: str, name: str) -> str | None:
    return ERRORS.get(f"{namespace}.{name}")


for _owner in OWNERS_OF_ABSENT_NAMES:
    replacements.implements(f"{_owner}.__getattr__")(functools.partial(_error_in_namespace, _owner))
for _owner in LATE_OWNERS_OF_ABSENT_NAMES:
    _public = _owner.partition(".python.")[0].replace("tensorflow.", "tf.", 1)
    replacements.implements(f"{_owner}.__getattr__")(functools.partial(_error_in_namespace, _public))
replacements.implements("sys.meta_path")((_LateModules(), _Finder()))
