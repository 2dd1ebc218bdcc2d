"""Changes of TensorFlow's functions and namespaces, and how each becomes undone.

Other libraries may replace the same function, before this one or after it. What they have put around a
wrapper of this library stays where it is when the wrapper is undone: the wrapper then only passes calls on.
Nothing here is thread-safe, as building graphs is not.
"""

from __future__ import annotations

import abc
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import tensorflow as tf

_logger = logging.getLogger(__name__)
_ABSENT = object()


class Change(abc.ABC):
    """A change that has been made."""

    @abc.abstractmethod
    def undo(self) -> None:
        """Undoes the change, as far as nobody else has built upon it."""

    def redo(self) -> bool:
        """Undoes `undo` where something of the change is still in its place; returns whether there is."""
        return False


class Wrapper(Change):
    """Puts a wrapper in the place of a function.

    Args:
      owner: the class or module that has the function.
      attribute: the function's name there.
      wrap: returns the wrapper of the function that it is given.
    """

    def __init__(
        self, owner: type | ModuleType, attribute: str, wrap: Callable[[Callable], Callable]
    ) -> None:
        self._owner = owner
        self._attribute = attribute
        # What the owner itself has: a class may inherit the function.
        self._before = vars(owner).get(attribute, _ABSENT)
        self._is_on = True
        is_static = isinstance(inspect.getattr_static(owner, attribute), staticmethod)
        switch = self._switch(getattr(owner, attribute), wrap)
        self._ours = staticmethod(switch) if is_static else switch
        self._outermost: Any = self._ours
        setattr(owner, attribute, self._ours)

    def undo(self) -> None:
        """Makes the function what it was. A wrapper that another library has put around stays there."""
        self._is_on = False
        self._outermost = vars(self._owner).get(self._attribute, _ABSENT)
        if self._outermost is not self._ours:
            return
        if self._before is _ABSENT:
            delattr(self._owner, self._attribute)
        else:
            setattr(self._owner, self._attribute, self._before)

    def redo(self) -> bool:
        """Undoes `undo` where the wrapper is still in its place; returns whether it is.

        It is there if another library had put its own around it, which still is the function or was removed.
        """
        now = vars(self._owner).get(self._attribute, _ABSENT)
        if now is self._ours or (now is self._outermost and now is not _ABSENT):
            self._is_on = True
        return self._is_on

    def _switch(self, original: Callable, wrap: Callable[[Callable], Callable]) -> Callable:
        wrapper = wrap(original)

        @functools.wraps(wrapper)
        def switch(*args: Any, **kwargs: Any) -> Any:
            return wrapper(*args, **kwargs) if self._is_on else original(*args, **kwargs)

        # Keras asks functions for the names of their arguments, and does not look below a wrapper for them.
        vars(switch)["__signature__"] = inspect.signature(wrapper)
        return switch


class Dispatch(Change):
    """Gives a function of TensorFlow's another implementation for some types of its arguments.

    Args:
      owner: the module that has the function.
      attribute: the function's name there.
      implementation: `(function, types)`; the types by the names of the arguments.
    """

    def __init__(
        self, owner: ModuleType, attribute: str, implementation: tuple[Callable, Mapping[str, Any]]
    ) -> None:
        self._function, types = implementation
        tf.experimental.dispatch_for_api(getattr(owner, attribute), dict(types))(self._function)

    def undo(self) -> None:
        """Takes the implementation away."""
        tf.experimental.unregister_dispatch_for(self._function)


class AddedName(Change):
    """Gives a namespace of TensorFlow's a name that it does not have; one that it has stays what it is.

    Args:
      owner: the namespace.
      attribute: the name.
      value: what the name stands for.
    """

    def __init__(self, owner: ModuleType, attribute: str, value: Any) -> None:
        self._owner = owner
        self._attribute = attribute
        self._value = value
        self._is_added = not hasattr(owner, attribute)
        if self._is_added:
            setattr(owner, attribute, value)
        elif getattr(owner, attribute) is not value:
            _logger.warning("TensorFlow has %s.%s itself; it stays", owner.__name__, attribute)

    def undo(self) -> None:
        """Takes the name away, where it still stands for the same."""
        if self._is_added and getattr(self._owner, self._attribute, _ABSENT) is self._value:
            delattr(self._owner, self._attribute)


class AddedModule(Change):
    """Makes a module importable under a name of TensorFlow's, where there is none of that name.

    Args:
      owner: unused.
      attribute: the module's full name.
      module: what to import under it.
    """

    def __init__(self, owner: Any, attribute: str, module: ModuleType) -> None:
        del owner
        self._name = attribute
        self._module = module
        sys.modules.setdefault(attribute, module)

    def undo(self) -> None:
        """Takes the module away."""
        if sys.modules.get(self._name) is self._module:
            del sys.modules[self._name]
