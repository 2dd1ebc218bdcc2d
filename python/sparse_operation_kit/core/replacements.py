"""Installs and uninstalls what the table of replacements lists.

The modules that replace something of TensorFlow's register the implementations here, when they are imported;
the package imports them. Importing alone changes nothing: a process that does not use the library has
TensorFlow as it was. Nothing here is thread-safe, as building graphs is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sparse_operation_kit import compat
from sparse_operation_kit.core import reversible_change
from sparse_operation_kit.core.replacement_table import TABLE, How, Part, Replacement
from sparse_operation_kit.core.reversible_change import Change

_T = TypeVar("_T")

_ENTRIES = {entry.name: entry for entry in TABLE}
_CHANGES = {
    How.WRAPPED: reversible_change.Wrapper,
    How.DISPATCHED: reversible_change.Dispatch,
    How.ADDED: reversible_change.AddedName,
    How.ADDED_MODULE: reversible_change.AddedModule,
}
_implementations: dict[str, Any] = {}
# By part, its changes in the order in which they were made, by the owner and the name of what is changed.
_installed: dict[Part, dict[tuple[Any, str], Change]] = {}
# Of parts that are not installed now, what was uninstalled last: something of it may still be in its place.
_uninstalled: dict[Part, dict[tuple[Any, str], Change]] = {}


def implements(*names: str) -> Callable[[_T], _T]:
    """Registers what it decorates as the implementation of the table's entries of these names.

    That is, for an entry that is wrapped, a function that takes the original and returns the wrapper; for one
    that is added, what the name stands for.

    Raises:
      KeyError: There is no such entry.
      ValueError: It has an implementation already.
    """

    def register(implementation: _T) -> _T:
        for name in names:
            _register(name, implementation)
        return implementation

    return register


def implements_for_types(name: str, types: Mapping[str, Any]) -> Callable[[_T], _T]:
    """As `implements`, of an entry that is dispatched: the function for arguments of these types."""

    def register(function: _T) -> _T:
        _register(name, (function, types))
        return function

    return register


def install(*parts: Part) -> None:
    """Changes TensorFlow in the whole process as the entries of the parts say. Harmless when done already.

    Raises:
      RuntimeError: The module that implements an entry is not imported; nothing of its part is changed.
    """
    for part in parts:
        if part not in _installed:
            _installed[part] = _make_changes(part)


def uninstall(*parts: Part) -> None:
    """Undoes `install`, the last change first: what nobody else has changed since is as it was before."""
    for part in reversed(parts):
        if part in _installed:
            _uninstalled[part] = _installed.pop(part)
            _undo(_uninstalled[part])


def is_installed(part: Part) -> bool:
    """Whether TensorFlow is changed as the entries of the part say."""
    return part in _installed


def _register(name: str, implementation: Any) -> None:
    if name not in _ENTRIES:
        raise KeyError(f"{name} is not in the table of replacements")
    if name in _implementations:
        raise ValueError(f"{name} has two implementations")
    _implementations[name] = implementation


def _make_changes(part: Part) -> dict[tuple[Any, str], Change]:
    before = _uninstalled.pop(part, {})
    changes: dict[tuple[Any, str], Change] = {}
    try:
        for entry in TABLE:
            if entry.part is part and entry.is_needed(compat.VERSION):
                for owner in entry.owners():
                    key = (owner, entry.attribute)
                    changes[key] = _make_change(entry, owner, before.get(key))
    except Exception:
        _undo(changes)
        raise
    return changes


def _make_change(entry: Replacement, owner: Any, before: Change | None) -> Change:
    if before is not None and before.redo():
        return before
    if entry.name not in _implementations:
        raise RuntimeError(f"{entry.name}: no module that is imported implements its replacement")
    return _CHANGES[entry.how](owner, entry.attribute, _implementations[entry.name])


def _undo(changes: Mapping[tuple[Any, str], Change]) -> None:
    for change in reversed(list(changes.values())):
        change.undo()
