"""Reversible changes of TensorFlow's functions and namespaces.

Other libraries may replace the same function, before or after this library. If another library has wrapped a
wrapper of this library, undoing leaves both in place, and the wrapper of this library only passes calls on.
Not thread-safe, like building graphs.
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

from sparse_operation_kit.compat import dispatch, namespaces

_logger = logging.getLogger(__name__)
_ABSENT = object()


class Change(abc.ABC):
    """A change that has been made."""

    @abc.abstractmethod
    def undo(self) -> None:
        """Undoes the change, except where other libraries have changed the same thing since."""

    def redo(self) -> bool:
        """Reverts `undo` if a part of the change is still in place; returns whether it is."""
        return False


class Wrapper(Change):
    """Replaces a function by a wrapper.

    Args:
      owner: the class or module that has the function.
      attribute: the function's name there.
      wrap: takes the function and returns its wrapper.
    """

    def __init__(
        self, owner: type | ModuleType, attribute: str, wrap: Callable[[Callable], Callable]
    ) -> None:
        self._owner = owner
        self._attribute = attribute
        # Not getattr: a class may inherit the function instead of defining it.
        self._before = vars(owner).get(attribute, _ABSENT)
        self._is_on = True
        is_static = isinstance(inspect.getattr_static(owner, attribute), staticmethod)
        switch = self._switch(namespaces.attribute(owner, attribute), wrap)
        self._ours = staticmethod(switch) if is_static else switch
        self._outermost: Any = self._ours
        setattr(owner, attribute, self._ours)

    def undo(self) -> None:
        """Restores the function, unless another library has wrapped the wrapper."""
        self._is_on = False
        self._outermost = vars(self._owner).get(self._attribute, _ABSENT)
        if self._outermost is not self._ours:
            return
        if self._before is _ABSENT:
            delattr(self._owner, self._attribute)
        else:
            setattr(self._owner, self._attribute, self._before)

    def redo(self) -> bool:
        """Reverts `undo` if the wrapper is still in place; returns whether it is.

        It is in place if another library had wrapped it, whether that library's wrapper is still there or was
        removed.
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

        # Keras inspects the argument names of functions, but does not look inside wrappers.
        vars(switch)["__signature__"] = inspect.signature(wrapper)
        return switch


class Dispatch(Change):
    """Gives a TensorFlow function another implementation for some types of its arguments.

    Args:
      owner: the module that has the function.
      attribute: the function's name there.
      implementation: `(function, types)`; `types` maps argument names to types.
    """

    def __init__(
        self, owner: ModuleType, attribute: str, implementation: tuple[Callable, Mapping[str, Any]]
    ) -> None:
        function, types = implementation
        self._undo = dispatch.dispatch(getattr(owner, attribute), types, function)

    def undo(self) -> None:
        """Removes the implementation."""
        self._undo()


class Conversion(Change):
    """Gives a TensorFlow class another conversion to tensors, which may pass objects on to TensorFlow's.

    TensorFlow cannot forget a conversion. After `undo`, it passes all objects on.

    Args:
      owner: the module that has the class.
      attribute: the class's name there.
      convert: takes an object, and the dtype and the name of the tensor, or None; returns the tensor, or
        `NotImplemented` to pass the object on.
    """

    def __init__(
        self,
        owner: ModuleType,
        attribute: str,
        convert: Callable[[Any, tf.DType | None, str | None], Any],
    ) -> None:
        self._is_on = True

        def convert_if_on(
            value: Any, dtype: Any = None, name: str | None = None, as_ref: bool = False
        ) -> Any:
            del as_ref
            return convert(value, dtype, name) if self._is_on else NotImplemented

        # Smaller numbers are asked first; TensorFlow's own have 100.
        tf.register_tensor_conversion_function(getattr(owner, attribute), convert_if_on, priority=99)

    def undo(self) -> None:
        """Passes all objects on."""
        self._is_on = False

    def redo(self) -> bool:
        """Converts again."""
        self._is_on = True
        return True


class AddedName(Change):
    """Adds a name to a TensorFlow namespace, unless the namespace has it already.

    Args:
      owner: the namespace.
      attribute: the name.
      value: the object to add.
    """

    def __init__(self, owner: ModuleType, attribute: str, value: Any) -> None:
        self._owner = owner
        self._attribute = attribute
        self._value = value
        existing = namespaces.attribute(owner, attribute, _ABSENT)
        self._is_added = existing is _ABSENT
        if self._is_added:
            setattr(owner, attribute, value)
        elif existing is not value:
            _logger.warning("TensorFlow already has %s.%s; it is not replaced", owner.__name__, attribute)

    def undo(self) -> None:
        """Removes the name, if it still refers to the same object."""
        if self._is_added and getattr(self._owner, self._attribute, _ABSENT) is self._value:
            namespaces.remove_name(self._owner, self._attribute)


class AddedModule(Change):
    """Makes a module importable under a TensorFlow module name, unless that module is imported already.

    Args:
      owner: unused.
      attribute: the module's full name.
      module: the module to import under that name.
    """

    def __init__(self, owner: Any, attribute: str, module: ModuleType) -> None:
        del owner
        self._name = attribute
        self._module = module
        sys.modules.setdefault(attribute, module)

    def undo(self) -> None:
        """Removes the module."""
        if sys.modules.get(self._name) is self._module:
            del sys.modules[self._name]


class MissingNames(Change):
    """Gives names that a module does not have errors of their own, by the module's `__getattr__`.

    The error is an AttributeError, so that `hasattr` is false.

    Args:
      owner: the module.
      attribute: "__getattr__".
      error_of: returns the error's text for a name, or None for other names.
    """

    def __init__(self, owner: ModuleType, attribute: str, error_of: Callable[[str], str | None]) -> None:
        self._owner = owner
        self._attribute = attribute
        self._before = vars(owner).get(attribute)
        self._is_on = True

        def missing(name: str) -> Any:
            error = error_of(name) if self._is_on else None
            if error is None and self._before is not None:
                return self._before(name)
            raise AttributeError(error or f"module {owner.__name__!r} has no attribute {name!r}")

        self._ours = missing
        setattr(owner, attribute, missing)

    def undo(self) -> None:
        """Restores the module's own errors."""
        self._is_on = False
        if vars(self._owner).get(self._attribute) is not self._ours:
            return
        namespaces.remove_name(self._owner, self._attribute)
        if self._before is not None:
            setattr(self._owner, self._attribute, self._before)


class AddedFinders(Change):
    """Adds finders of modules.

    Args:
      owner: `sys`.
      attribute: "meta_path".
      finders: the finder that Python asks first, and the one that it asks last.
    """

    def __init__(self, owner: ModuleType, attribute: str, finders: tuple[Any, Any]) -> None:
        self._finders = getattr(owner, attribute)
        self._added = finders
        first, last = finders
        self._finders.insert(0, first)
        self._finders.append(last)

    def undo(self) -> None:
        """Removes the finders."""
        for finder in self._added:
            if finder in self._finders:
                self._finders.remove(finder)
