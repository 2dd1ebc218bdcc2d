"""Runs a program written for DeepRec unchanged: `python -m sparse_operation_kit.deeprec PROGRAM`.

If the program, or a module in its folder, imports `tensorflow`, it gets `tf.compat.v1` with DeepRec's names.
If it asks `pkg_resources`, the version of TensorFlow is DeepRec's. TensorFlow itself and other packages are
not affected.
"""

from __future__ import annotations

import builtins
import functools
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from sparse_operation_kit import compat

_USAGE = """usage: python -m sparse_operation_kit.deeprec PROGRAM [ARGUMENT]...

Runs a Python program that was written for DeepRec as it is: its `import tensorflow` gives TensorFlow 1's
names and DeepRec's."""


def main(arguments: Sequence[str]) -> None:
    """Runs the program named by the first argument as Python would, with the other arguments as its own.

    Raises:
      SystemExit: No program is named, it cannot be read, or help was asked for. Errors of the program are
        passed on.
    """
    if not arguments or arguments[0].startswith("-"):
        wants_help = bool(arguments) and arguments[0] in ("-h", "--help")
        print(_USAGE, file=sys.stdout if wants_help else sys.stderr)
        sys.exit(0 if wants_help else 2)
    path = os.path.abspath(arguments[0])
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file '{path}': {error}", file=sys.stderr)
        sys.exit(2)
    folder = os.path.dirname(os.path.realpath(path))
    is_of_program = _is_of(folder)
    builtins.__import__ = _importing("pkg_resources", _with_deeprec, is_of_program)
    if compat.IS_TENSORFLOW_2:
        tf.compat.v1.disable_v2_behavior()
        builtins.__import__ = _importing("tensorflow", _of_v1, is_of_program)
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = folder
    sys.argv[:] = arguments
    sys.excepthook = functools.partial(_show_error, sys.excepthook, path)
    program = _main_module(path)
    exec(compile(source, path, "exec", dont_inherit=True), vars(program))


def _main_module(path: str) -> types.ModuleType:
    """The module `__main__` of a program, as Python makes it."""
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(module).update(__file__=path, __builtins__=builtins, __cached__=None, __loader__=loader)
    sys.modules["__main__"] = module
    return module


def _is_of(folder: str) -> Callable[[str], bool]:
    """Whether a file is the program's: in its folder, but not in another folder of packages within that."""
    inside = os.path.join(folder, "")
    others = [os.path.join(os.path.realpath(entry), "") for entry in sys.path[1:] if entry]
    others = [other for other in others if other.startswith(inside) and other != inside]

    def is_of(file: str) -> bool:
        real = os.path.realpath(file)
        return real.startswith(inside) and not real.startswith(tuple(others))

    return is_of


def _importing(
    package: str, instead_of: Callable[[Any, str, Any], Any], is_of_program: Callable[[str], bool]
) -> Callable[..., Any]:
    """Wraps `__import__`: for a package's modules, the program gets `instead_of(module, name, fromlist)`."""
    import_ = builtins.__import__

    @functools.wraps(import_)
    def import_other(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        module = import_(name, globals, locals, fromlist, level)
        is_of_package = name.partition(".")[0] == package and not level
        if is_of_package and is_of_program((globals or {}).get("__file__", "")):
            return instead_of(module, name, fromlist)
        return module

    return import_other


def _of_v1(module: Any, name: str, fromlist: Any) -> Any:
    """The module of `tf.compat.v1` for a module of TensorFlow."""
    of_v1 = _module_of_v1(name)
    # TensorFlow's private modules, and `tensorflow.compat` itself, are not in `tf.compat.v1`.
    if of_v1 is None or not all(one == "*" or hasattr(of_v1, one) for one in fromlist or ()):
        return module
    return of_v1 if fromlist else tf.compat.v1


def _module_of_v1(name: str) -> Any:
    """The module of `tf.compat.v1` for a module of TensorFlow; None if there is none."""
    parts = name.split(".")[1:]
    if parts[:1] == ["compat"]:
        return None
    return functools.reduce(lambda module, part: getattr(module, part, None), parts, tf.compat.v1)


def _show_error(
    show: Callable[..., None],
    path: str,
    kind: type,
    error: BaseException,
    traceback: types.TracebackType | None,
) -> None:
    """Shows an error as if the program had been started without the launcher."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != path:
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    for one in _chain(error):
        one.__traceback__ = _without_launcher(one.__traceback__)
    show(kind, error, error.__traceback__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it was raised from or while they were handled."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]


def _without_launcher(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback without the lines of this file's wrappers."""
    entries = []
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename != __file__:
            entries.append(traceback)
        traceback = traceback.tb_next
    for entry, following in zip(entries, [*entries[1:], None]):
        entry.tb_next = following
    return entries[0] if entries else None


def _with_deeprec(module: types.ModuleType, name: str, fromlist: Any) -> types.ModuleType:
    """A `pkg_resources` for which TensorFlow is DeepRec; other modules of the package as they are."""
    del fromlist
    return _copy_with_deeprec(module) if name == "pkg_resources" else module


@functools.lru_cache(maxsize=None)
def _copy_with_deeprec(pkg_resources: types.ModuleType) -> types.ModuleType:
    """A copy of the module whose `get_distribution` finds DeepRec under TensorFlow's name."""

    @functools.wraps(pkg_resources.get_distribution)
    def get_distribution(dist: Any) -> Any:
        if isinstance(dist, str) and dist.lower() == "tensorflow":
            return pkg_resources.Distribution(project_name=dist, version=f"{tf.__version__}+deeprec")
        return pkg_resources.get_distribution(dist)

    copy = types.ModuleType(pkg_resources.__name__, pkg_resources.__doc__)
    vars(copy).update(vars(pkg_resources), get_distribution=get_distribution)
    return copy
