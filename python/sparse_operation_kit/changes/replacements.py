"""Installs and uninstalls the entries of the table of replacements.

The modules that implement entries register them here when they are imported; the package imports them all.
Importing alone does not change TensorFlow. Not thread-safe, like building graphs.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from sparse_operation_kit import compat
from sparse_operation_kit.changes import reversible_change
from sparse_operation_kit.changes.replacement_table import INSTALLED_BY, TABLE, How, Replacement
from sparse_operation_kit.changes.reversible_change import Change

_T = TypeVar("_T")

_entries: dict[str, Replacement] = {}
_installed_by: dict[enum.Enum, str] = {}
_CHANGES = {
    How.WRAPPED: reversible_change.Wrapper,
    How.DISPATCHED: reversible_change.Dispatch,
    How.CONVERTED: reversible_change.Conversion,
    How.ADDED: reversible_change.AddedName,
    How.ADDED_MODULE: reversible_change.AddedModule,
    How.ADDED_FINDERS: reversible_change.AddedFinders,
    How.ERRORS: reversible_change.MissingNames,
}
_implementations: dict[str, Any] = {}
# For each installed part its changes in the order in which they were made, by owner and attribute.
_installed: dict[enum.Enum, dict[tuple[Any, str], Change]] = {}
# For each installed part, those who need it.
_users: dict[enum.Enum, set[str]] = {}
# For each uninstalled part its last changes: some wrappers may still be in place.
_uninstalled: dict[enum.Enum, dict[tuple[Any, str], Change]] = {}


def add_entries(table: Iterable[Replacement], installed_by: Mapping[enum.Enum, str]) -> None:
    """Adds a list of entries.

    Args:
      table: the entries, with new names.
      installed_by: what installs the entries of each part, and when.
    """
    _entries.update((entry.name, entry) for entry in table)
    _installed_by.update(installed_by)


def entries() -> Sequence[Replacement]:
    """Returns all entries."""
    return tuple(_entries.values())


def parts() -> Mapping[enum.Enum, str]:
    """Returns what installs each part, and when."""
    return MappingProxyType(_installed_by)


def implements(*names: str, types: Mapping[str, Any] | None = None) -> Callable[[_T], _T]:
    """Returns a decorator that registers the implementation of the table's entries with these names.

    For a wrapped entry the implementation is a function that takes the original and returns the wrapper. For
    an added entry it is the object to add. For a dispatched entry it is the function for arguments of these
    types.

    Raises:
      KeyError: There is no such entry.
      ValueError: An entry has an implementation already.
    """

    def register(implementation: _T) -> _T:
        for name in names:
            _register(name, implementation if types is None else (implementation, types))
        return implementation

    return register


def wraps(*names: str) -> Callable[[_T], _T]:
    """Like `implements`, for wrapped entries: registers a function of the original and a call's arguments."""

    def register(call: Any) -> Any:
        def wrap(original: Callable) -> Callable:
            @functools.wraps(original)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return call(original, *args, **kwargs)

            return wrapper

        implements(*names)(wrap)
        return call

    return register


# The user of parts that stay until `uninstall` is called without a user.
_FOR_GOOD = "for good"


def install(*parts: enum.Enum, user: str = _FOR_GOOD) -> None:
    """Makes the changes of the parts in the whole process, unless they are installed.

    Args:
      *parts: the parts.
      user: who needs the parts until it calls `uninstall`.

    Raises:
      RuntimeError: The module that implements an entry is not imported; the entry's part is not installed.
    """
    for part in parts:
        if part not in _installed:
            _installed[part] = _make_changes(part)
        _users.setdefault(part, set()).add(user)


def uninstall(*parts: enum.Enum, user: str | None = None) -> None:
    """Undoes `install`, last change first, except where other libraries have changed the same thing since.

    Args:
      *parts: the parts.
      user: who no longer needs the parts; they stay if another user has installed them. None: nobody needs
        them.
    """
    for part in reversed(parts):
        users = _users.get(part, set())
        users -= users if user is None else {user}
        if part in _installed and not users:
            _uninstalled[part] = _installed.pop(part)
            _undo(_uninstalled[part])


def reach_new_modules(part: enum.Enum) -> None:
    """If the part is installed, makes its changes in modules that were imported since."""
    if part in _installed:
        _installed[part].update(_make_changes(part, made=_installed[part]))


def is_installed(part: enum.Enum) -> bool:
    """Returns whether the part is installed."""
    return part in _installed


def _register(name: str, implementation: Any) -> None:
    if name not in _entries:
        raise KeyError(f"{name} is not in the table of replacements")
    if name in _implementations:
        raise ValueError(f"{name} has two implementations")
    _implementations[name] = implementation


def _make_changes(
    part: enum.Enum, made: Mapping[tuple[Any, str], Change] = MappingProxyType({})
) -> dict[tuple[Any, str], Change]:
    """Makes the part's changes that are not made yet, and returns them."""
    before = _uninstalled.pop(part, {})
    changes: dict[tuple[Any, str], Change] = {}
    try:
        for entry in _entries.values():
            # An entry that does not look for its owners has the one that it was made for.
            is_complete = made and entry.find_owners is None
            if entry.part is part and entry.is_needed(compat.VERSION) and not is_complete:
                for owner in entry.owners():
                    key = (owner, entry.attribute)
                    if key in made:
                        continue
                    changes[key] = _make_change(entry, owner, before.get(key))
    except Exception:
        _undo(changes)
        raise
    return changes


def _make_change(entry: Replacement, owner: Any, before: Change | None) -> Change:
    if before is not None and before.redo():
        return before
    if entry.name not in _implementations:
        raise RuntimeError(f"{entry.name}: no imported module implements its replacement")
    return _CHANGES[entry.how](owner, entry.attribute, _implementations[entry.name])


def _undo(changes: Mapping[tuple[Any, str], Change]) -> None:
    for change in reversed(list(changes.values())):
        change.undo()


add_entries(TABLE, INSTALLED_BY)
